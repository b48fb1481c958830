"""An intermediate representation of other engines' models: relations, conditions, tuples, and expected results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from policy.rules.declarations import did_you_mean

# ---- model --------------------------------------------------------------------------------------------------------
# A relation holds between a subject and an object: `document:plan#viewer@user:ann`. Its expression determines for which
# subjects: those of stored tuples (`Direct`), and those that other relations lead to.

# ruff: noqa: RUF009  `_place()` creates a field, as `field()` does


class Place(NamedTuple):
    """A place in a file: lines and columns count from 1; 0 means unknown."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join(str(part) for part in self if part)


NOWHERE = Place()


def _place() -> Place:
    return field(default=NOWHERE, compare=False, repr=False)


# ---- expressions: the subjects of a relation -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Direct:
    """The subjects of the relation's own tuples: `[user, group#member]`."""

    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Computed:
    """The subjects of another relation of the same object."""

    relation: str
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Arrow:
    """The subjects of `relation` on any of the objects, or on `every` object, that the tuples of `tupleset` lead to.

    Only the object of a tuple counts: from `folder:a#viewer` in the tupleset, the arrow leads to `folder:a`. An object
    whose type has no `relation` contributes no subjects. With `every`, the tupleset must lead to at least one object.
    """

    tupleset: str
    relation: str
    every: bool = False
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Union:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Intersection:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Exclusion:
    base: Expression
    subtract: Expression


@dataclass(frozen=True, slots=True)
class Nothing:
    """No subjects."""


@dataclass(frozen=True, slots=True)
class Itself:
    """The object itself, as a subject."""

    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Unsure:
    """Some unknown subset of `most`: neither this nor its negation grants anything."""

    most: Expression
    place: Place = _place()


Expression = Direct | Computed | Arrow | Union | Intersection | Exclusion | Nothing | Itself | Unsure


# ---- types -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind of subject that tuples may have: `user`, `group#member` or `user:*`, optionally with a condition."""

    type: str
    relation: str | None = None
    wildcard: bool = False
    condition: str | None = None  # the name
    expires: bool = False  # whether its tuples have an expiry, each of them
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class ModelRelation:
    """`subjects` are those of `Direct`: if empty, the expression has no `Direct`."""

    name: str
    expression: Expression
    subjects: tuple[Subject, ...] = ()
    is_permission: bool = False  # derived, so it cannot be assigned
    comment: tuple[str, ...] = ()  # the lines before and after it, without comment marks
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    relations: tuple[ModelRelation, ...] = ()
    comment: tuple[str, ...] = ()
    place: Place = _place()


# ---- conditions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelParameter:
    """`type` as in both engines: int, uint, bool, string, timestamp, duration, ipaddress, list<string>, …"""

    name: str
    type: str
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class GivenValue:
    """The value of a parameter: the tuple's, or else the request's."""

    parameter: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a Polar type: timestamps and durations are seconds, addresses integers."""

    value: int | str | bool


@dataclass(frozen=True, slots=True)
class Sum:
    """`left + right` or `left - right`, of integers, times and durations."""

    left: ModelOperand
    right: ModelOperand
    minus: bool = False
    place: Place = _place()
    type: str = field(default="int", compare=False)  # of the result


@dataclass(frozen=True, slots=True)
class NetworkEnd:
    """The first or last address of the network that a parameter of type string names."""

    parameter: str
    is_last: bool


ModelOperand = GivenValue | Constant | Sum | NetworkEnd


@dataclass(frozen=True, slots=True)
class ModelComparison:
    operator: str  # == != < <= > >=
    left: ModelOperand
    right: ModelOperand


@dataclass(frozen=True, slots=True)
class OneOf:
    """`item in [constants]`, or `item in parameter` for a parameter that is a list."""

    item: ModelOperand
    values: tuple[Constant, ...] | GivenValue


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A parameter of type bool as a test."""

    parameter: str


@dataclass(frozen=True, slots=True)
class Always:
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Negation:
    inner: ModelTest


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[ModelTest, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[ModelTest, ...]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """`test ? one : other`. If the test is unknown, so is this, whatever its sides are."""

    test: ModelTest
    one: ModelTest
    other: ModelTest


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A test without an equivalent in Polar: it is neither true nor false; `reason` says why."""

    text: str
    reason: str
    place: Place = _place()


ModelTest = ModelComparison | OneOf | IsTrue | Always | Negation | AllOf | AnyOf | ModelChoice | Unsupported


@dataclass(frozen=True, slots=True)
class ModelCondition:
    """The condition of a tuple. If a value that would decide the test is missing, it is neither true nor false.

    Then the tuple grants nothing, but where its relation is subtracted, the tuple counts as if the condition were met.
    """

    name: str
    parameters: tuple[ModelParameter, ...]
    test: ModelTest
    text: str = ""  # the original text
    comment: tuple[str, ...] = ()
    place: Place = _place()
    needs_every_value: bool = False  # so that `x < 9 || y < 9` is not met without a y


@dataclass(frozen=True, slots=True)
class Model:
    types: tuple[Type, ...]
    conditions: tuple[ModelCondition, ...] = ()
    comment: tuple[str, ...] = ()  # at the start of the file


# ---- tuples and tests ------------------------------------------------------------------------------------------------

ContextValues = tuple[tuple[str, object], ...]  # values from JSON, by parameter name


@dataclass(frozen=True, slots=True)
class Thing:
    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.type}:{self.id}"


@dataclass(frozen=True, slots=True)
class Who:
    """A subject: an object, its `relation` (a userset), or every object of the type, if its id is `*`."""

    type: str
    id: str
    relation: str | None = None

    @property
    def is_everybody(self) -> bool:
        return self.id == "*"

    def __str__(self) -> str:
        return f"{self.type}:{self.id}#{self.relation}" if self.relation else f"{self.type}:{self.id}"


@dataclass(frozen=True, slots=True)
class Tuple:
    """`values` are the condition's parameters that the tuple binds, with values from JSON."""

    object: Thing
    relation: str
    subject: Who
    condition: str | None = None
    values: ContextValues = ()
    expiry: datetime | None = None
    place: Place = _place()

    def __str__(self) -> str:
        return f"{self.object}#{self.relation}@{self.subject}"


@dataclass(frozen=True, slots=True)
class ExpectedCheck:
    subject: Who
    relation: str
    object: Thing
    expected: bool
    context: ContextValues = ()
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The expected list of objects of a type: exactly these ids."""

    subject: Who
    relation: str
    type: str
    expected: tuple[str, ...]
    context: ContextValues = ()
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class SubjectList:
    """The expected list of subjects of a kind: exactly these; the id `*` is the wildcard."""

    object: Thing
    relation: str
    type: str
    subject_relation: str | None
    expected: tuple[Who, ...]
    context: ContextValues = ()
    place: Place = _place()


ModelExpectation = ExpectedCheck | ObjectList | SubjectList


@dataclass(frozen=True, slots=True)
class Scenario:
    """A test: tuples in addition to the common ones, and expected results."""

    name: str
    tuples: tuple[Tuple, ...] = ()
    expectations: tuple[ModelExpectation, ...] = ()
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Imported:
    """Everything that was read. `tuples` are common to all tests."""

    model: Model
    tuples: tuple[Tuple, ...] = ()
    scenarios: tuple[Scenario, ...] = ()


# ---- the report of what was converted and what was not, with places: nothing is dropped silently ------------------


class ImportRejected(Exception):
    """The input is invalid; `faults` are all errors that were found, with their places."""

    def __init__(self, faults: Iterable[Fault]):
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


@dataclass(frozen=True, slots=True)
class Fault:
    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if any(self.place) else self.message


def wrong(place: Place, message: str) -> ImportRejected:
    """Return an exception with a single error."""
    return ImportRejected([Fault(place, message)])


class ModelKind(Enum):
    NEEDED = "cannot be left out"  # omitting it would grant more: the import is rejected
    LOST = "not imported"  # omitting it grants nothing more: the import is rejected unless --partial is given
    EXPIRED = "expired"  # a tuple that no longer grants anything in the original, either
    CHANGED = "changed"  # the same under another name


class ImportReport:
    def __init__(self) -> None:
        self._found: dict[ModelKind, dict[Fault, None]] = {kind: {} for kind in ModelKind}

    def add(self, kind: ModelKind, place: Place, message: str) -> None:
        self._found[kind][Fault(place, message)] = None

    def of(self, kind: ModelKind) -> list[Fault]:
        return [*self._found[kind]]


# ---- traversing expressions ---------------------------------------------------------------------------------------


def leaves(expression: Expression, negated: bool = False) -> Iterator[tuple[Expression, bool]]:
    """Yield each leaf of an expression and each `Unsure`, and whether it is on the subtracted side of an exclusion."""
    match expression:
        case Union(parts) | Intersection(parts):
            for part in parts:
                yield from leaves(part, negated)
        case Exclusion(base, subtract):
            yield from leaves(base, negated)
            yield from leaves(subtract, True)
        case Unsure(most):
            yield from leaves(most, negated)
            yield expression, negated
        case _:
            yield expression, negated


def alternatives(expression: Expression) -> tuple[Expression, ...]:
    """Return the parts of a union, flattened: each of them is sufficient."""
    if isinstance(expression, Union):
        return tuple(each for part in expression.parts for each in alternatives(part))
    return () if isinstance(expression, Nothing) else (expression,)


def changed(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return the expression with `change` applied to each part, bottom-up."""
    match expression:
        case Union(parts):
            return change(Union(tuple(changed(part, change) for part in parts)))
        case Intersection(parts):
            return change(Intersection(tuple(changed(part, change) for part in parts)))
        case Exclusion(base, subtract):
            return change(Exclusion(changed(base, change), changed(subtract, change)))
        case Unsure(most, place):
            return change(Unsure(changed(most, change), place))
        case _:
            return change(expression)


def is_direct(expression: Expression) -> bool:
    return isinstance(expression, Direct)


def relations_of(model: Model) -> Iterator[tuple[Type, ModelRelation]]:
    for type_ in model.types:
        for relation in type_.relations:
            yield type_, relation


def atoms(test: ModelTest) -> Iterator[ModelTest]:
    """Yield the parts of a test that are not combinations of others."""
    match test:
        case AllOf(parts) | AnyOf(parts):
            inner = parts
        case ModelChoice(chosen, one, other):
            inner = (chosen, one, other)
        case Negation(negated):
            inner = (negated,)
        case _:
            yield test
            return
    for part in inner:
        yield from atoms(part)


def operands(test: ModelTest) -> Iterator[ModelOperand]:
    """Yield the values that a test needs, which are not constants."""
    for atom in atoms(test):
        needed: tuple[object, ...] = ()
        match atom:
            case IsTrue(name):
                needed = (GivenValue(name),)
            case ModelComparison(_, left, right):
                needed = (left, right)
            case OneOf(item, values):
                needed = (item, values)
        yield from (each for each in needed if isinstance(each, GivenValue | Sum | NetworkEnd))


# ---- validation: all names exist, and are unique ------------------------------------------------------------------


class ModelWords(NamedTuple):
    """An engine's terms for types and conditions, and whether its arrows may follow `user:*`, or lead to nothing."""

    type: str
    condition: str
    follows_everybody: bool
    leads_to_nothing: bool


def refuse(faults: Iterable[Fault]) -> None:
    """Raise ImportRejected with all faults, if there are any."""
    if found := sorted(dict.fromkeys(faults), key=lambda fault: fault.place):
        raise ImportRejected(found)


def repeated(declared: Iterable[Any], what: str) -> Iterator[Fault]:
    """Yield an error for each declaration whose name another one has."""
    seen: dict[str, Place] = {}
    for each in declared:
        if each.name in seen:
            yield Fault(each.place, f"{what} `{each.name}`, at {seen[each.name]}; rename one of them")
        seen.setdefault(each.name, each.place)


def faults_of(model: Model, words: ModelWords) -> Iterator[Fault]:
    """Yield the errors within types and conditions, whose own names must be unique already."""
    members = {type_.name: {each.name: each for each in type_.relations} for type_ in model.types}
    conditions = [each.name for each in model.conditions]
    for condition in model.conditions:
        names = [parameter.name for parameter in condition.parameters]
        for parameter in condition.parameters:
            if names.count(parameter.name) > 1:
                message = f"`{condition.name}` has two parameters `{parameter.name}`; rename one"
                yield Fault(parameter.place, message)
    for type_ in model.types:
        yield from repeated(type_.relations, f"`{type_.name}` has another")
    for type_, relation in relations_of(model):
        for subject in relation.subjects:
            if subject.type not in members:
                yield Fault(subject.place, f"unknown {words.type} {_missing(subject.type, members)}")
            elif subject.relation and subject.relation not in members[subject.type]:
                advice = _missing(subject.relation, members[subject.type])
                yield Fault(subject.place, f"`{subject.type}` has no {advice}")
            if subject.condition and subject.condition not in conditions:
                yield Fault(subject.place, f"unknown {words.condition} {_missing(subject.condition, conditions)}")
        for leaf, _ in leaves(relation.expression):
            name = leaf.relation if isinstance(leaf, Computed) else leaf.tupleset if isinstance(leaf, Arrow) else None
            if name is not None and name not in members[type_.name]:
                yield Fault(
                    getattr(leaf, "place", NOWHERE), f"`{type_.name}` has no {_missing(name, members[type_.name])}"
                )
            elif isinstance(leaf, Arrow):
                yield from _faults_of_arrow(leaf, members[type_.name][leaf.tupleset], members, words)


def _faults_of_arrow(
    arrow: Arrow, followed: ModelRelation, members: dict[str, dict[str, ModelRelation]], words: ModelWords
) -> Iterator[Fault]:
    targets = [members[each.type] for each in followed.subjects if each.type in members]
    everybody = next((each for each in followed.subjects if each.wildcard), None)
    if not followed.subjects:
        yield Fault(arrow.place, f"an arrow requires a relation with tuples, and `{arrow.tupleset}` has none")
    elif everybody and not words.follows_everybody:
        yield Fault(arrow.place, f"an arrow cannot follow `{arrow.tupleset}`, which allows `{everybody.type}:*`")
    elif targets and not words.leads_to_nothing and not any(arrow.relation in target for target in targets):
        yield Fault(arrow.place, f"no type of `{arrow.tupleset}` has a relation `{arrow.relation}`")


def _missing(name: str, known: Iterable[str]) -> str:
    meant = did_you_mean(name, known)
    return f"`{name}`; {meant}" if meant else f"`{name}`"


# ---- unknown parameters -------------------------------------------------------------------------------------------
# Tuples may only give values to existing parameters of their conditions: a misspelled name would bind nothing.


def check_parameters(imported: Imported) -> None:
    """Raise ImportRejected with every value whose parameter does not exist in the condition."""
    parameters = {each.name: {one.name for one in each.parameters} for each in imported.model.conditions}
    refuse(
        Fault(each.place, f"tuple {each}: condition {each.condition} has no parameter `{name}`; remove it")
        for each in _tuples(imported)
        for name, _ in each.values
        if each.condition in parameters and name not in parameters[each.condition]
    )


def _tuples(imported: Imported) -> Iterator[Tuple]:
    yield from imported.tuples
    for scenario in imported.scenarios:
        yield from scenario.tuples
