"""The syntax tree of a policy, as written.

Nothing here is resolved or checked. Every node but `Policy` has a `span`. Equality ignores spans, so two texts that
differ only in layout have equal trees.
"""

# ruff: noqa: RUF009  `_span()` makes a field, as `field()` does

from __future__ import annotations

from dataclasses import dataclass, field

from policy.language.source import NOWHERE, Span
from policy.values import Value


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
