"""Syntax tree -> canonical text. Parsing the text gives an equal tree."""

from collections.abc import Iterable

from policy.language import ast
from policy.values import quoted

_INDENT = "  "


def print_policy(policy: ast.Policy) -> str:
    """Return the text of a policy, with a blank line between items except between two rules."""
    paragraphs: list[str] = []
    for index, item in enumerate(policy.items):
        if index and not (isinstance(item, ast.Rule) and isinstance(policy.items[index - 1], ast.Rule)):
            paragraphs.append("")
        paragraphs.append(print_item(item))
    return "".join(f"{paragraph}\n" for paragraph in paragraphs)


def print_item(item: ast.Item) -> str:
    match item:
        case ast.Block():
            return _block(item)
        case ast.Rule(head, body):
            called = _call(head.predicate, head.params)
            return f"{called};" if body is None else f"{called} if {print_formula(body)};"
        case ast.Declare(predicate, types):
            return f"declare {predicate.text}({', '.join(name.text for name in types)});"
        case ast.Fixture(name, facts):
            return _braced(f"test fixture {name.text}", map(_fact, facts))
        case ast.Test(name, setup, assertions):
            lines = [_braced("setup", map(_fact, setup))] if setup else []
            return _braced(f"test {quoted(name.text)}", [*lines, *map(_assertion, assertions)])


def _braced(opening: str, lines: Iterable[str]) -> str:
    """Return the lines in braces, indented by one step; `{}` on the same line if there are none."""
    inner = "".join(f"{_INDENT}{line}\n" for text in lines for line in text.split("\n"))
    return f"{opening} {{\n{inner}}}" if inner else f"{opening} {{}}"


# ---- blocks --------------------------------------------------------------------------------------


def _block(block: ast.Block) -> str:
    words = [block.kind]
    if block.name:
        words.append(block.name.text)
    if block.extends:
        words += ["extends", ", ".join(name.text for name in block.extends)]
    return _braced(" ".join(words), map(_entry, block.items))


def _entry(entry: ast.NameList | ast.RelationMap | ast.Shorthand) -> str:
    match entry:
        case ast.NameList(keyword, names):
            return f"{keyword.text} = [{', '.join(quoted(name.text) for name in names)}];"
        case ast.RelationMap(keyword, relations):
            inside = ", ".join(map(_relation, relations))
            return f"{keyword.text} = {{ {inside} }};" if inside else f"{keyword.text} = {{}};"
        case ast.Shorthand(head, body):
            return f"{print_formula(head)} if {print_formula(body)};"


def _relation(relation: ast.Relation) -> str:
    return f"{relation.name.text}: {relation.type.text}" if relation.type else relation.name.text


# ---- formulas ------------------------------------------------------------------------------------


def print_formula(formula: ast.Formula) -> str:
    match formula:
        case ast.Call(predicate, args):
            return _call(predicate, args)
        case ast.Comparison(operator, left, right):
            return f"{print_term(left)} {operator} {print_term(right)}"
        case ast.Membership(term, values):
            return f"{print_term(term)} in {_list(values)}"
        case ast.Matches(variable, type_name, exact):
            return f"{variable.name} matches{'!' if exact else ''} {type_name.text}"
        case ast.Truth(value):
            return "true" if value else "false"
        case ast.Not(inner):
            return f"not {_negated(inner)}"
        case ast.And(parts):
            return " and ".join(map(_conjunct, parts))
        case ast.Or(parts):
            return " or ".join(map(print_formula, parts))
        case ast.Reference(name, is_word, relation):
            written = name if is_word else quoted(name)
            return f"{written} on {quoted(relation)}" if relation is not None else written
        case ast.GlobalReference(name, is_word):
            return f"global {name if is_word else quoted(name)}"


def _conjunct(formula: ast.Formula) -> str:
    return f"({print_formula(formula)})" if isinstance(formula, ast.Or) else print_formula(formula)


def _negated(formula: ast.Formula) -> str:
    return f"({print_formula(formula)})" if isinstance(formula, ast.And | ast.Or) else print_formula(formula)


def _call(predicate: ast.Name, args: Iterable[ast.Term | ast.Parameter]) -> str:
    return f"{predicate.text}({', '.join(map(print_term, args))})"


def _list(values: tuple[ast.Literal, ...]) -> str:
    return f"[{', '.join(map(print_term, values))}]"


def print_term(term: ast.Term | ast.Parameter) -> str:
    match term:
        case ast.Variable(name):
            return name
        case ast.Literal(value):
            return str(value)
        case ast.CurrentTime():
            return "@current_unix_time"
        case ast.Parameter(variable, type_name):
            return f"{variable.name}: {type_name.text}"


# ---- tests ---------------------------------------------------------------------------------------


def _fact(fact: ast.Call | ast.FixtureUse) -> str:
    return f"fixture {fact.name.text};" if isinstance(fact, ast.FixtureUse) else f"{print_formula(fact)};"


def _assertion(assertion: ast.Assertion | ast.NeverAssertion) -> str:
    if isinstance(assertion, ast.NeverAssertion):
        condition = f" if {print_formula(assertion.condition)}" if assertion.condition else ""
        return f"assert_never {_call(assertion.goal.predicate, assertion.goal.params)}{condition};"
    keyword = "assert" if assertion.expected else "assert_not"
    called = f"{keyword} {_call(assertion.predicate, assertion.args)}"
    return f"{called}{_clause(assertion.iff)};" if assertion.iff else f"{called};"


def _clause(iff: ast.ValuesClause) -> str:
    return f" iff {iff.variable.name} {'not in' if iff.negated else 'in'} {_list(iff.values)}"
