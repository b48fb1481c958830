"""What both engines say, in one form: types with relations, conditions, tuples, and what tests expect.

A relation holds between a subject and an object: `document:plan#viewer@user:ann`. Its expression says for which
subjects: those of stored tuples (`Direct`), and those that other relations lead to.
"""

# ruff: noqa: RUF009  `_place()` makes a field, as `field()` does

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


class Place(NamedTuple):
    """Where something stands: lines and columns count from 1; a column of 0 is not known."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join(str(part) for part in self if part)


NOWHERE = Place()


def _place() -> Place:
    return field(default=NOWHERE, compare=False, repr=False)


# ---- expressions: for which subjects a relation holds ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Direct:
    """Those of the relation's own tuples: `[user, group#member]`."""

    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Computed:
    """Those of another relation of the same object."""

    relation: str
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Arrow:
    """Those of `relation` on the objects that the tuples of `tupleset` lead to: on any of them, or on `every` one.

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
    """Nobody."""


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
    """A kind of subject that tuples may have: `user`, `group#member`, `user:*`, each perhaps with a condition."""

    type: str
    relation: str | None = None
    wildcard: bool = False
    condition: str | None = None  # its name
    expires: bool = False  # its tuples say when they end, each of them
    place: Place = _place()

    def __str__(self) -> str:
        written = f"{self.type}:*" if self.wildcard else f"{self.type}#{self.relation}" if self.relation else self.type
        return f"{written} with {self.condition}" if self.condition else written


@dataclass(frozen=True, slots=True)
class Relation:
    """`subjects` are those of `Direct`: without any, there is no `Direct` in the expression."""

    name: str
    expression: Expression
    subjects: tuple[Subject, ...] = ()
    is_permission: bool = False  # nobody is given it: it follows
    comment: tuple[str, ...] = ()  # the lines before it and after it, without their marks
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    relations: tuple[Relation, ...] = ()
    comment: tuple[str, ...] = ()
    place: Place = _place()


# ---- conditions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """`type` as both engines write it: int, uint, bool, string, timestamp, duration, ipaddress, list<string>, …"""

    name: str
    type: str
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Given:
    """The value of a parameter: the tuple's, or the request's where the tuple has none."""

    parameter: str
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of a type that Polar has: timestamps and durations are seconds, addresses numbers."""

    value: int | str | bool
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Sum:
    """`left + right` or `left - right`, of whole numbers, times and durations."""

    left: Operand
    right: Operand
    minus: bool = False
    place: Place = _place()
    type: str = field(default="int", compare=False)  # of what it comes to


Operand = Given | Constant | Sum


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str  # == != < <= > >=
    left: Operand
    right: Operand
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class OneOf:
    """`item in [constants]`, or `item in parameter` for a parameter that is a list."""

    item: Operand
    values: tuple[Constant, ...] | Given
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class InNetwork:
    """`address.in_cidr(network)`: `network` is a Constant text, or a parameter of type string."""

    address: Given | Constant
    network: Given | Constant
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A parameter of type bool, by itself."""

    parameter: str
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Always:
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Negation:
    inner: Test


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """What has no equal in Polar: it is neither true nor false here, and `reason` says what it was."""

    text: str
    reason: str
    place: Place = _place()


Test = Comparison | OneOf | InNetwork | IsTrue | Always | Negation | AllOf | AnyOf | Unsupported


@dataclass(frozen=True, slots=True)
class Condition:
    """What a tuple depends on. A test that lacks a value which would decide it is neither true nor false.

    Then the tuple grants nobody anything. Only where its relation is subtracted does the tuple count as if it held.
    """

    name: str
    parameters: tuple[Parameter, ...]
    test: Test
    text: str = ""  # as it was written
    comment: tuple[str, ...] = ()
    place: Place = _place()
    needs_every_value: bool = False  # and is not met by `x < 9 || y < 9` where nobody says y


@dataclass(frozen=True, slots=True)
class Model:
    types: tuple[Type, ...]
    conditions: tuple[Condition, ...] = ()
    comment: tuple[str, ...] = ()  # at the start of the file


# ---- tuples and tests ------------------------------------------------------------------------------------------------

Values = tuple[tuple[str, object], ...]  # by the names of parameters, as JSON has them


@dataclass(frozen=True, slots=True)
class Thing:
    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.type}:{self.id}"


@dataclass(frozen=True, slots=True)
class Who:
    """A subject: an object, its `relation` (a userset), or every object of the type, whose id is `*`."""

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
    """`values` are what the tuple binds of its condition's parameters: values as JSON has them."""

    object: Thing
    relation: str
    subject: Who
    condition: str | None = None
    values: Values = ()
    expiry: datetime | None = None
    place: Place = _place()

    def __str__(self) -> str:
        return f"{self.object}#{self.relation}@{self.subject}"


@dataclass(frozen=True, slots=True)
class Check:
    subject: Who
    relation: str
    object: Thing
    expected: bool
    context: Values = ()
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class ObjectList:
    """Which objects of a type: exactly these ids."""

    subject: Who
    relation: str
    type: str
    expected: tuple[str, ...]
    context: Values = ()
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class SubjectList:
    """Which subjects of a kind: exactly these; one of id `*` stands for everybody."""

    object: Thing
    relation: str
    type: str
    subject_relation: str | None
    expected: tuple[Who, ...]
    context: Values = ()
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A test: its tuples beside those of all, and what it expects."""

    name: str
    tuples: tuple[Tuple, ...] = ()
    expectations: tuple[Check | ObjectList | SubjectList, ...] = ()
    place: Place = _place()


@dataclass(frozen=True, slots=True)
class Imported:
    """All that was read; each test begins with `tuples`."""

    model: Model
    tuples: tuple[Tuple, ...] = ()
    scenarios: tuple[Scenario, ...] = ()
