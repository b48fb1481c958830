"""Build formulas; parts that are always true or always false are simplified away."""

from collections.abc import Iterable

from policy.language import ast
from policy.values import BOOLEAN, INTEGER, STRING, Value

ACTOR = ast.Variable("actor")
RESOURCE = ast.Variable("resource")
WHEN = ast.Variable("when")
ANY = ast.Variable("_")
TRUE, FALSE = ast.Truth(True), ast.Truth(False)


def text(value: str) -> ast.Literal:
    return ast.Literal(Value(STRING, value))


def constant(value: int | str | bool) -> ast.Literal:
    if isinstance(value, bool):
        return ast.Literal(Value(BOOLEAN, "true" if value else "false"))
    return ast.Literal(Value(INTEGER, str(value))) if isinstance(value, int) else text(value)


def call(predicate: str, *args: ast.Term) -> ast.Call:
    return ast.Call(ast.Name(predicate), args)


def matches(name: str, type_name: str) -> ast.Matches:
    return ast.Matches(ast.Variable(name), ast.Name(type_name))


def parameter(name: str, type_name: str) -> ast.Parameter:
    return ast.Parameter(ast.Variable(name), ast.Name(type_name))


def rule(predicate: str, params: Iterable[ast.Parameter | ast.Term], body: ast.Formula | None) -> ast.Rule:
    return ast.Rule(ast.Head(ast.Name(predicate), tuple(params)), body)


def parts_of(formula: ast.Formula, kind: type[ast.And] | type[ast.Or]) -> tuple[ast.Formula, ...]:
    """Return the parts of a formula of this kind; of another, the formula itself."""
    return formula.parts if isinstance(formula, kind) else (formula,)


def every(*parts: ast.Formula) -> ast.Formula:
    """Return the conjunction of the parts, flattened; drops `true`, and is `false` if a part is."""
    flat = [each for part in parts for each in parts_of(part, ast.And)]
    if FALSE in flat:
        return FALSE
    return _joined(ast.And, [each for each in flat if each != TRUE], TRUE)


def either(*parts: ast.Formula) -> ast.Formula:
    """Return the disjunction of the parts, flattened; drops `false`, and is `true` if a part is."""
    flat = [each for part in parts for each in parts_of(part, ast.Or)]
    if TRUE in flat:
        return TRUE
    return _joined(ast.Or, [each for each in flat if each != FALSE], FALSE)


def no(formula: ast.Formula) -> ast.Formula:
    match formula:
        case ast.Truth(value):
            return ast.Truth(not value)
        case ast.Not(inner):
            return inner
    return ast.Not(formula)


def _joined(kind: type[ast.And] | type[ast.Or], parts: list[ast.Formula], empty: ast.Formula) -> ast.Formula:
    unique = tuple(dict.fromkeys(parts))
    if not unique:
        return empty
    return unique[0] if len(unique) == 1 else kind(unique)
