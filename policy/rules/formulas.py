"""Helpers for formulas of the syntax tree, for several passes.

They use an explicit stack instead of recursion, so that a deeply nested text does not reach Python's recursion limit.
"""

from collections.abc import Iterator

from policy.language import ast

Names = frozenset[str]
Memo = dict[int, tuple[ast.Formula, Names]]  # by id(); it keeps the formula alive, so that no other gets the same id
ANONYMOUS = "_"


def conjuncts(formula: ast.Formula | None) -> list[ast.Formula]:
    """Flatten a conjunction, with at most two `not` on any conjunct: `a and (b and c)` -> a, b, c."""
    found: list[ast.Formula] = []
    stack = [] if formula is None else [formula]
    while stack:
        match stack.pop():
            case ast.And(parts):
                stack += reversed(parts)
            case ast.Not(ast.Not(ast.Not() as inner)):
                stack.append(inner)
            case ast.Membership(term, (value,), span):
                found.append(ast.Comparison("=", term, value, span))
            case ast.Or() as alternatives_:
                found.append(_as_membership(alternatives_) or alternatives_)
            case other:
                found.append(other)
    return found


def alternatives(formula: ast.Formula) -> list[ast.Formula]:
    """Return the parts of a disjunction; of any other formula, the formula itself as the only part."""
    parts = conjuncts(formula)
    if len(parts) == 1 and isinstance(parts[0], ast.Or):
        return list(parts[0].parts)
    return [formula]


def _as_membership(formula: ast.Or) -> ast.Membership | None:
    """Merge equalities with one variable: `x = "a" or x in ["b", "c"]` -> `x in ["a", "b", "c"]`."""
    values: list[ast.Literal] = []
    terms = set()
    for part in formula.parts:
        match part:
            case ast.Comparison("=", ast.Variable() as term, ast.Literal() as value) | ast.Comparison(
                "=", ast.Literal() as value, ast.Variable() as term
            ):
                values.append(value)
            case ast.Membership(ast.Variable() as term, listed):
                values += listed
            case _:
                return None
        terms.add(term)
    only = terms.pop()
    is_one = not terms and only.name != ANONYMOUS and len(values) > 1
    return ast.Membership(only, tuple(values), formula.span) if is_one else None


def mentioned(formula: ast.Formula, memo: Memo) -> Names:
    """Return the variables of a formula, `_` left out; `memo` makes asking for every part of a formula linear."""
    stack = [formula]
    while stack:
        node = stack[-1]
        waiting = [part for part in parts_of(node) if id(part) not in memo]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        memo[id(node)] = (node, _own(node).union(*(memo[id(part)][1] for part in parts_of(node))))
    return memo[id(formula)][1]


def parts_of(formula: ast.Formula) -> tuple[ast.Formula, ...]:
    match formula:
        case ast.And(parts) | ast.Or(parts):
            return parts
        case ast.Not(inner):
            return (inner,)
    return ()


def variables_of(formula: ast.Formula) -> tuple[ast.Variable, ...]:
    """Return the variables of one formula that has no parts, as often as they occur."""
    match formula:
        case ast.Call(_, args):
            return tuple(arg for arg in args if isinstance(arg, ast.Variable))
        case ast.Comparison(_, left, right):
            return tuple(term for term in (left, right) if isinstance(term, ast.Variable))
        case ast.Membership(ast.Variable() as variable, _) | ast.Matches(variable, _):
            return (variable,)
    return ()


def _own(formula: ast.Formula) -> Names:
    return frozenset(variable.name for variable in variables_of(formula)) - {ANONYMOUS}


def simple_formulas(formula: ast.Formula | None) -> Iterator[ast.Formula]:
    """Yield every part of the formula that has no parts."""
    stack = [] if formula is None else [formula]
    while stack:
        node = stack.pop()
        inner = parts_of(node)
        stack += reversed(inner)
        if not inner:
            yield node


def is_named(term: ast.Term) -> bool:
    """Say whether the term is anything but `_`."""
    return not (isinstance(term, ast.Variable) and term.name == ANONYMOUS)
