"""A compiled policy: typed, flat rules and what follows from them.

A `Program` is valid by construction: its users report no errors about the policy. Everything prints as Polar, so a
golden file of rules reads like a policy.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

from policy.language.source import NOWHERE, Problem, Source, Span
from policy.values import INTEGER, STRING, Value

Types = frozenset[str]  # concrete types: declared actors and resources, String, Integer, Boolean


# ---- terms and literals -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Var:
    name: str

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Now:
    """`@current_unix_time`: one Integer for a whole query."""

    def __str__(self) -> str:
        return "@current_unix_time"


Term = Var | Value | Now


@dataclass(frozen=True, slots=True)
class Atom:
    predicate: str
    args: tuple[Term, ...]

    def __str__(self) -> str:
        return f"{self.predicate}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class Not:
    """True if no value of the variables that occur only here makes the atom true."""

    atom: Atom

    def __str__(self) -> str:
        return f"not {self.atom}"


@dataclass(frozen=True, slots=True)
class Compare:
    """`!=` on any two values; the operators in `TYPED` on values of their type; `=` if neither side is a variable."""

    operator: str
    left: Term
    right: Term

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


class TypedComparison(NamedTuple):
    """A comparison that is defined only for values of one type."""

    type: str
    holds: Callable[[str, str], bool]  # compares two ids


TYPED: Mapping[str, TypedComparison] = {
    "<": TypedComparison(INTEGER, lambda left, right: int(left) < int(right)),
    "<=": TypedComparison(INTEGER, lambda left, right: int(left) <= int(right)),
    ">": TypedComparison(INTEGER, lambda left, right: int(left) > int(right)),
    ">=": TypedComparison(INTEGER, lambda left, right: int(left) >= int(right)),
}


@dataclass(frozen=True, slots=True)
class Member:
    """The variable equals one of the values. This binds the variable if nothing else does."""

    variable: Var
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.variable} in [{', '.join(map(str, self.values))}]"


Literal = Atom | Not | Compare | Member


@dataclass(frozen=True, slots=True)
class Rule:
    """`head if body`: the body is a conjunction; `types` has every variable of the rule.

    A head variable that the body does not bind stands for every value of its types.
    """

    head: Atom
    body: tuple[Literal, ...]
    types: Mapping[Var, Types] = field(hash=False)
    origin: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        if not self.body:
            return f"{self.head};"
        return f"{self.head} if {' and '.join(map(str, self.body))};"


# ---- the program ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypeDef:
    """An actor or resource block, including what it inherits."""

    name: str
    kind: str  # actor or resource
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    relations: Mapping[str, str] = field(default_factory=dict, hash=False)  # name -> type as written


@dataclass(frozen=True, slots=True)
class Signature:
    """A predicate with a concrete type for each argument: the kind of a stored fact."""

    predicate: str
    types: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.predicate}({', '.join(self.types)})"


@dataclass(frozen=True, slots=True)
class Assertion:
    """One assertion of a test. At most one argument is a `Var`, of type `variable_type`."""

    expected: bool
    atom: Atom
    variable_type: str | None
    iff_negated: bool
    iff_values: tuple[Value, ...] | None  # None without `iff`
    text: str  # as written
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Invariant:
    """`assert_never`: no facts make the goal and the condition true. Both are texts."""

    goal: str
    condition: str  # empty if there is no condition
    text: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Test:
    name: str
    facts: tuple[Atom, ...]  # ground; fixtures already included
    assertions: tuple[Assertion, ...]
    invariants: tuple[Invariant, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Program:
    source: Source
    types: Mapping[str, TypeDef]  # declared actors and resources, without the abstract Actor and Resource
    subtypes: Mapping[str, Types]  # usable type name -> its concrete types, including itself if it is one
    global_roles: tuple[str, ...]
    global_permissions: tuple[str, ...]
    has_global: bool
    rules: tuple[Rule, ...]  # longhand and expanded rules, default rules and helpers, all flat
    helpers: frozenset[str]  # predicates created by normalization: never stored, never queried by name
    accepted: Mapping[tuple[str, int], tuple[tuple[Types, ...], ...]]  # fact patterns by (predicate, arity)
    tests: tuple[Test, ...]
    warnings: tuple[Problem, ...]
    digest: str  # of the source text
    defined: frozenset[str] = frozenset()  # predicates of all rules, also of those that are left out as never true

    @cached_property
    def written(self) -> Mapping[Span, tuple[Rule, ...]]:
        """Return the rules of the text by position, each with the flat rules made from it; no defaults, no helpers."""
        found: dict[Span, list[Rule]] = {}
        for rule in self.rules:
            if rule.origin != NOWHERE and rule.head.predicate not in self.helpers:
                found.setdefault(rule.origin, []).append(rule)
        return {origin: tuple(rules) for origin, rules in found.items()}

    @cached_property
    def rules_by_predicate(self) -> Mapping[tuple[str, int], tuple[Rule, ...]]:
        grouped: dict[tuple[str, int], list[Rule]] = {}
        for rule in self.rules:
            grouped.setdefault((rule.head.predicate, len(rule.head.args)), []).append(rule)
        return {key: tuple(rules) for key, rules in grouped.items()}

    @cached_property
    def types_by_predicate(self) -> Mapping[tuple[str, int], tuple[tuple[Types, ...], ...]]:
        """Return the argument types of facts and rule heads, by predicate and arity: what a call can match."""
        found: dict[tuple[str, int], dict[tuple[Types, ...], None]] = {}
        for key, patterns in self.accepted.items():
            found[key] = dict.fromkeys(patterns)
        for key, rules in self.rules_by_predicate.items():
            for rule in rules:
                found.setdefault(key, {})[tuple(types_of(term, rule.types) for term in rule.head.args)] = None
        return {key: tuple(patterns) for key, patterns in found.items()}

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        """Return a dictionary for what others compute from the program, by keys of the program's own words."""
        return {}

    @cached_property
    def predicates(self) -> frozenset[str]:
        """Return every predicate that a query may use: defined, called or declared."""
        names = {name for name, _ in self.accepted} | {name for name, _ in self.rules_by_predicate}
        return self.defined.union(names) - self.helpers

    @cached_property
    def values(self) -> Mapping[str, frozenset[str]]:
        """Return the ids that the rules mention, by type."""
        found: dict[str, set[str]] = {}
        for rule in self.rules:
            for literal in (rule.head, *rule.body):
                for value in _values_in(literal):
                    found.setdefault(value.type, set()).add(value.id)
        return {name: frozenset(ids) for name, ids in found.items()}

    @cached_property
    def names(self) -> frozenset[str]:
        """Return every String that the rules mention: the names by which queries are specialized."""
        return self.values.get(STRING, frozenset())

    def knows(self, type_name: str) -> bool:
        """Return whether values can have this type: it is declared, and not abstract."""
        return type_name in self.subtypes.get(type_name, ())

    @cached_property
    def accepts(self) -> Callable[[str, tuple[str, ...]], bool]:
        """Return whether facts of a signature can matter to the policy (and so may be stored)."""
        return lru_cache(1000)(partial(_accepts, self.accepted))  # not a method, whose cache would refer to itself


def _accepts(
    accepted: Mapping[tuple[str, int], tuple[tuple[Types, ...], ...]], predicate: str, types: tuple[str, ...]
) -> bool:
    patterns = accepted.get((predicate, len(types)), ())
    return any(all(t in allowed for t, allowed in zip(types, pattern)) for pattern in patterns)


def types_of(term: Term, types: Mapping[Var, Types]) -> Types:
    """Return the types that a term of a rule can have; `types` are those of the rule's variables."""
    match term:
        case Value(type=name):
            return frozenset((name,))
        case Now():
            return frozenset((INTEGER,))
        case _:
            return types[term]


def _values_in(literal: Literal) -> Iterator[Value]:
    match literal:
        case Atom(_, args) | Not(Atom(_, args)):
            terms: tuple[Term, ...] = args
        case Member(_, values):
            terms = values
        case Compare(_, left, right):
            terms = (left, right)
    return (term for term in terms if isinstance(term, Value))
