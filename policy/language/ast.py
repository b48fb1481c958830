"""The syntax tree of a policy, as written, and its canonical text.

Nothing here is resolved or checked. Every node but `Policy` has a `span`. Equality ignores spans, so two texts that
differ only in layout have equal trees.
"""

# ruff: noqa: RUF009  `_span()` makes a field, as `field()` does

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from policy.language.source import NOWHERE, Span
from policy.values import Value, quoted


def _span() -> Span:
    return field(default=NOWHERE, compare=False, repr=False)


# ---- words and terms --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier where only an identifier can occur: a type, a predicate, a relation, a test's fixture."""

    text: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Variable:
    """`x`, `_` (anonymous, each one fresh) or `_x`."""

    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Literal:
    """`"s"`, `3`, `true`, `User{"alice"}`, `Integer{3}`: its type may turn out to be undeclared."""

    value: Value
    span: Span = _span()
    type_span: Span | None = field(default=None, compare=False, repr=False)  # position of an entity's type


@dataclass(frozen=True, slots=True)
class CurrentTime:
    """`@current_unix_time`."""

    span: Span = _span()


Term = Variable | Literal | CurrentTime


@dataclass(frozen=True, slots=True)
class Parameter:
    """`x: Type`, in a rule's head or in a test's assertion."""

    variable: Variable
    type: Name
    span: Span = _span()


# ---- formulas: the bodies of rules, in longhand and shorthand -----------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    predicate: Name
    args: tuple[Term, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str  # = != < <= > >=
    left: Term
    right: Term
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Membership:
    """`x in ["a", "b"]`."""

    term: Term
    values: tuple[Literal, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Matches:
    """`x matches Type`, or if `exact`, `x matches! Type`, which excludes subtypes."""

    variable: Variable
    type: Name
    exact: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Truth:
    value: bool
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Not:
    formula: Formula
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class And:
    """Two or more conjuncts, none of them an And."""

    parts: tuple[Formula, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Or:
    """Two or more alternatives, none of them an Or."""

    parts: tuple[Formula, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Reference:
    """In shorthand: `"reader"`, or the bare word `role` or `permission`; optionally with `on "relation"`."""

    name: str
    is_word: bool = False  # a bare word, not a string
    relation: str | None = None
    span: Span = _span()
    relation_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GlobalReference:
    """In shorthand: `global "admin"`."""

    name: str
    is_word: bool = False
    span: Span = _span()


Formula = Call | Comparison | Membership | Matches | Truth | Not | And | Or | Reference | GlobalReference


# ---- items ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class String:
    """A string in a list of names."""

    text: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class NameList:
    """`roles = [...]` or `permissions = [...]`; `keyword` is as written, and may be wrong."""

    keyword: Name
    names: tuple[String, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Relation:
    name: Name
    type: Name | None  # None if the policy gives no type, or more than one; such a policy is rejected
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class RelationMap:
    """`relations = { name: Type }`; `keyword` is as written, and may be wrong."""

    keyword: Name
    relations: tuple[Relation, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Shorthand:
    """`"read" if "reader";` inside a block."""

    head: Reference  # its `relation` is always None
    body: Formula
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Block:
    kind: str  # actor, resource or global
    name: Name | None  # None for global
    extends: tuple[Name, ...]
    items: tuple[NameList | RelationMap | Shorthand, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Head:
    predicate: Name
    params: tuple[Parameter | Term, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Rule:
    head: Head
    body: Formula | None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Declare:
    predicate: Name
    types: tuple[Name, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Fixture:
    name: Name
    facts: tuple[Call | FixtureUse, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class FixtureUse:
    """`fixture name;` inside a setup or another fixture."""

    name: Name
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ValuesClause:
    """`iff v in ["a"]` or `iff v not in ["a"]`."""

    variable: Variable
    negated: bool
    values: tuple[Literal, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Assertion:
    """`assert` or `assert_not` with a call, whose arguments are literals and at most one typed variable."""

    expected: bool
    predicate: Name
    args: tuple[Literal | Parameter, ...]
    iff: ValuesClause | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class NeverAssertion:
    """`assert_never` with a goal that no facts make true, or none that also make the condition true."""

    goal: Head
    condition: Formula | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Test:
    name: String
    setup: tuple[Call | FixtureUse, ...]
    assertions: tuple[Assertion | NeverAssertion, ...]
    span: Span = _span()


Item = Block | Rule | Declare | Fixture | Test


@dataclass(frozen=True, slots=True)
class Policy:
    items: tuple[Item, ...]


# ---- the tree as text: parsing it gives an equal tree ---------------------------------------------

_INDENT = "  "


def print_item(item: Item) -> str:
    match item:
        case Block():
            return _block(item)
        case Rule(head, body):
            called = _call(head.predicate, head.params)
            return f"{called};" if body is None else f"{called} if {print_formula(body)};"
        case Declare(predicate, types):
            return f"declare {predicate.text}({', '.join(name.text for name in types)});"
        case Fixture(name, facts):
            return _braced(f"test fixture {name.text}", map(_fact, facts))
        case Test(name, setup, assertions):
            lines = [_braced("setup", map(_fact, setup))] if setup else []
            return _braced(f"test {quoted(name.text)}", [*lines, *map(_assertion, assertions)])


def _braced(opening: str, lines: Iterable[str]) -> str:
    """Return the lines in braces, indented by one step; `{}` on the same line if there are none."""
    inner = "".join(f"{_INDENT}{line}\n" for text in lines for line in text.split("\n"))
    return f"{opening} {{\n{inner}}}" if inner else f"{opening} {{}}"


# ---- blocks --------------------------------------------------------------------------------------


def _block(block: Block) -> str:
    words = [block.kind]
    if block.name:
        words.append(block.name.text)
    if block.extends:
        words += ["extends", ", ".join(name.text for name in block.extends)]
    return _braced(" ".join(words), map(print_entry, block.items))


def print_entry(entry: NameList | RelationMap | Shorthand) -> str:
    match entry:
        case NameList(keyword, names):
            return f"{keyword.text} = [{', '.join(quoted(name.text) for name in names)}];"
        case RelationMap(keyword, relations):
            inside = ", ".join(map(_relation, relations))
            return f"{keyword.text} = {{ {inside} }};" if inside else f"{keyword.text} = {{}};"
        case Shorthand(head, body):
            return f"{print_formula(head)} if {print_formula(body)};"


def _relation(relation: Relation) -> str:
    return f"{relation.name.text}: {relation.type.text}" if relation.type else relation.name.text


# ---- formulas ------------------------------------------------------------------------------------


def print_formula(formula: Formula) -> str:
    match formula:
        case Call(predicate, args):
            return _call(predicate, args)
        case Comparison(operator, left, right):
            return f"{print_term(left)} {operator} {print_term(right)}"
        case Membership(term, values):
            return f"{print_term(term)} in {_list(values)}"
        case Matches(variable, type_name, exact):
            return f"{variable.name} matches{'!' if exact else ''} {type_name.text}"
        case Truth(value):
            return "true" if value else "false"
        case Not(inner):
            return f"not {_within(inner, And, Or)}"
        case And(parts):
            return " and ".join(_within(part, Or) for part in parts)
        case Or(parts):
            return " or ".join(map(print_formula, parts))
        case Reference(name, is_word, relation):
            written = name if is_word else quoted(name)
            return f"{written} on {quoted(relation)}" if relation is not None else written
        case GlobalReference(name, is_word):
            return f"global {name if is_word else quoted(name)}"


def _within(formula: Formula, *bracketed: type) -> str:
    """Return a part of a formula, in parentheses if it is of one of these kinds."""
    return f"({print_formula(formula)})" if isinstance(formula, bracketed) else print_formula(formula)


def _call(predicate: Name, args: Iterable[Term | Parameter]) -> str:
    return f"{predicate.text}({', '.join(map(print_term, args))})"


def _list(values: tuple[Literal, ...]) -> str:
    return f"[{', '.join(map(print_term, values))}]"


def print_term(term: Term | Parameter) -> str:
    match term:
        case Variable(name):
            return name
        case Literal(value):
            return str(value)
        case CurrentTime():
            return "@current_unix_time"
        case Parameter(variable, type_name):
            return f"{variable.name}: {type_name.text}"


# ---- tests ---------------------------------------------------------------------------------------


def _fact(fact: Call | FixtureUse) -> str:
    return f"fixture {fact.name.text};" if isinstance(fact, FixtureUse) else f"{print_formula(fact)};"


def _assertion(assertion: Assertion | NeverAssertion) -> str:
    if isinstance(assertion, NeverAssertion):
        condition = f" if {print_formula(assertion.condition)}" if assertion.condition else ""
        return f"assert_never {_call(assertion.goal.predicate, assertion.goal.params)}{condition};"
    keyword = "assert" if assertion.expected else "assert_not"
    called = f"{keyword} {_call(assertion.predicate, assertion.args)}"
    return f"{called}{_clause(assertion.iff)};" if assertion.iff else f"{called};"


def _clause(iff: ValuesClause) -> str:
    return f" iff {iff.variable.name} {'not in' if iff.negated else 'in'} {_list(iff.values)}"
