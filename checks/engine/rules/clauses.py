"""Clauses, which are the engine's rules, and limits on planning."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from math import inf
from typing import Any, Generic, TypeVar, dataclass_transform, overload

from checks.errors import InliningTooLarge, PlannedTooLong, TooComplex
from policy.rules.program import Signature
from policy.values import STRING

# ---- values -------------------------------------------------------------------------------------------------------
# Frozen dataclasses that are faster to create and to look up: planning does both tens of thousands of times.

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(made: type[T]) -> type[T]:
    """Make a frozen dataclass with slots, whose `__init__` sets the fields through the slots' descriptors.

    Values are as frozen as usual. The `__init__` of an ordinary frozen dataclass calls `object.__setattr__`, which
    looks up each field by name: that is three times as slow, and took a fifth of the planning time.
    """
    found: type[T] = dataclass(frozen=True, slots=True)(made)
    own: list[Any] = [each for each in fields(found) if each.init]  # type: ignore[arg-type]
    assert all(each.default_factory is MISSING for each in own), "a default is a value here"
    assert not hasattr(made, "__post_init__"), "a field is what is passed, and nothing is computed here"
    names: dict[str, Any] = {f"set_{each.name}": getattr(found, each.name).__set__ for each in own}
    names |= {f"default_{each.name}": each.default for each in own if each.default is not MISSING}
    params = [f"{each.name}=default_{each.name}" if each.default is not MISSING else each.name for each in own]
    lines = [f"    set_{each.name}(self, {each.name})" for each in own]
    exec(f"def __init__(self, {', '.join(params)}):\n" + "\n".join(lines), names)  # noqa: S102 - as dataclasses make theirs
    found.__init__ = names["__init__"]  # type: ignore[method-assign]
    return found


def hashed_once(made: type[T]) -> type[T]:
    """Cache each value's hash in `_hash`: hashing is recursive, and plans look values up often."""
    whole: Callable[[Any], int] = made.__hash__

    def kept_hash(self: Any) -> int:
        try:
            found: int = self._hash
        except AttributeError:
            found = whole(self)
            object.__setattr__(self, "_hash", found)
        return found

    made.__hash__ = kept_hash  # type: ignore[method-assign]
    return made


# ---- Terms, literals and clauses: rules made concrete -------------------------------------------------------------
# A `Clause` is a rule for arguments of known concrete types, with the names that a question fixes substituted. Each
# argument of its literals, and so each variable, has exactly one type.

# ---- terms ----------------------------------------------------------------------------------------------


@value
class Const:
    """A value fixed by the policy or by the shape of the question."""

    id: str

    def __str__(self) -> str:
        return f'"{self.id}"'


@value
class Other:
    """A name in the question that equals no constant of the policy: only variables and facts can match it."""

    slot: str

    def __str__(self) -> str:
        return f"other:{self.slot}"


@value
class Slot:
    """A value in the question. A plan contains only the slot's name, so that questions share plans."""

    name: str

    def __str__(self) -> str:
        return f":{self.name}"


@value
class Var:
    number: int
    name: str = field(default="", compare=False)  # in the policy, for messages
    type: str = field(default="", compare=False)

    def __hash__(self) -> int:
        return self.number

    def numbered(self, number: int) -> Var:
        """Return the variable with another number."""
        return Var(number, self.name, self.type)

    def __str__(self) -> str:
        return f"{self.name or '_'}'{self.number}"


@value
class Col:
    """A column of a source in a branch that is being built. Source numbers are unique within a plan."""

    source: int
    name: str
    type: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"s{self.source}.{self.name}"


@value
class GoalKey:
    """A column of the goals: one of the values that a state was entered with."""

    index: int
    type: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"c{self.index}"


@value
class Inner:
    """A variable that occurs in one negation only; the negation holds if no value of it makes the call true."""

    number: int

    def __str__(self) -> str:
        return f"_{self.number}"


# Terms that have a value at run time. `Inner` has none: it becomes a `Var` when its negation is planned.
Operand = Const | Other | Slot | Col | GoalKey | Inner
Term = Operand | Var
AnyTerm = TypeVar("AnyTerm", bound=Term)
NOW = Slot("now")
LONGER_THAN_IDS = 513  # bytes, as long as columns that recursion makes


def stand_in(index: int) -> str:
    """Return an id that no fact can have. Plans read some of these to stand for all values that nothing mentions."""
    return str(index).ljust(LONGER_THAN_IDS, "*") if index else ""


def is_stand_in(text: str | None) -> bool:
    return text == "" or (text is not None and len(text) == LONGER_THAN_IDS and text.rstrip("*").isdecimal())


FRESH = Const(stand_in(0))


def type_of(term: Term) -> str:
    """Return the type of a variable or column; empty for other terms, whose type depends on where they are used."""
    return term.type if isinstance(term, (Var, Col, GoalKey)) else ""


UNBOUND = (Var, Inner)


def is_bound(term: Term) -> bool:
    return not isinstance(term, UNBOUND)


# ---- literals ----------------------------------------------------------------------------------------------


class ClauseSubset(StrEnum):
    """The subset of a predicate's clauses that a call refers to."""

    WHOLE = ""
    BASE = " base"  # all except transitive ones (see `linearised`)
    STEP = " step"  # one step of a closure: UNCLOSED, in either direction (see `Closure`)
    UNCLOSED = " unclosed"  # all except those that make it transitive or symmetric (see `Closure`)


@dataclass(frozen=True, slots=True)
class Path:
    """In place of the predicate: pairs of values that any number of hops of one argument connects (see `Separated`)."""

    number: int

    def __str__(self) -> str:
        return f" path {self.number}"


@dataclass(frozen=True, slots=True)
class Core:
    """All clauses except hops (see `Separated`).

    Which clauses are hops is decided with only the names in `consts` known, even if the call knows more names by now.
    `is_ground`: it is decided after facts were turned back into calls (see `with_call`).
    """

    consts: tuple[Const | Other | None, ...]
    is_ground: bool = False

    def __str__(self) -> str:
        return " ground" if self.is_ground else " core"


@hashed_once
@value
class Call:
    """The predicate holds for these arguments, by a fact or by a rule."""

    predicate: str
    types: tuple[str, ...]
    args: tuple[Term, ...]
    subset: ClauseSubset | Path | Core = ClauseSubset.WHOLE
    _hash: int = field(init=False, repr=False, compare=False)
    _pattern: Pattern = field(init=False, repr=False, compare=False)  # set by the first `pattern_of`

    @property
    def is_path(self) -> bool:
        return isinstance(self.subset, Path)

    def __str__(self) -> str:
        return f"{self.predicate}{self.subset}({', '.join(f'{t}:{a}' for t, a in zip(self.types, self.args))})"


@value
class Scan:
    """A stored or context fact of this signature has these arguments."""

    signature: Signature
    args: tuple[Term, ...]

    def __str__(self) -> str:
        return f"fact {self.signature.predicate}({', '.join(map(str, self.args))})"


@value
class Given:
    """The variable is one of several values in the question."""

    variable: Term
    slot: str
    are_many: bool = False  # so many that the plan follows all of them at once
    type: str = ""

    def __str__(self) -> str:
        return f"{self.variable} among {'many ' if self.are_many else ''}:{self.slot}"


@value
class Member(Generic[AnyTerm]):
    """The term is one of these values. A condition of a plan, too, once the term has a value."""

    variable: AnyTerm
    ids: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.variable} in {list(self.ids)}"


@value
class Neg:
    call: Call

    def __str__(self) -> str:
        return f"not {self.call}"


@value
class Cmp(Generic[AnyTerm]):
    """A comparison: `=` and `!=` of text; the order comparisons of Integers only. Like `Member`, also a condition."""

    operator: str
    left: AnyTerm
    right: AnyTerm

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


Literal = Call | Scan | Given | Member[Term] | Neg | Cmp[Term]


def terms_of(literal: Literal) -> tuple[Term, ...]:
    match literal:
        case Call(_, _, args) | Scan(_, args):
            return args
        case Neg(call):
            return call.args
        case Cmp(_, left, right):
            return (left, right)
        case Given(variable) | Member(variable):
            return (variable,)


@overload
def mapped(literal: Call, change: Callable[[Term], Term]) -> Call: ...
@overload
def mapped(literal: Literal, change: Callable[[Term], Term]) -> Literal: ...
def mapped(literal: Literal, change: Callable[[Term], Term]) -> Literal:
    """Return the literal with `change` applied to every term."""
    match literal:
        case Call(predicate, types, args, subset):
            return Call(predicate, types, tuple(map(change, args)), subset)
        case Scan(signature, args):
            return Scan(signature, tuple(map(change, args)))
        case Neg(call):
            return Neg(mapped(call, change))
        case Cmp(operator, left, right):
            return Cmp(operator, change(left), change(right))
        case Given(variable, slot, are_many, name):
            return Given(change(variable), slot, are_many, name)
        case Member(variable, ids):
            return Member(change(variable), ids)


def mentioned(literals: Iterable[Literal]) -> list[Call]:
    """Return the calls among the literals, including negated ones."""
    calls = (each.call if isinstance(each, Neg) else each for each in literals)
    return [each for each in calls if isinstance(each, Call)]


def variables_of(literals: Iterable[Literal]) -> set[Var]:
    return {term for literal in literals for term in terms_of(literal) if isinstance(term, Var)}


@overload
def substituted(literal: Call, terms: Mapping[Var, Term]) -> Call: ...
@overload
def substituted(literal: Neg, terms: Mapping[Var, Term]) -> Neg: ...
@overload
def substituted(literal: Literal, terms: Mapping[Var, Term]) -> Literal: ...
def substituted(literal: Literal, terms: Mapping[Var, Term]) -> Literal:
    if terms.keys().isdisjoint(terms_of(literal)):
        return literal
    return mapped(literal, lambda term: terms.get(term, term) if isinstance(term, Var) else term)


def substituted_terms(args: tuple[Term, ...], terms: Mapping[Var, Term]) -> tuple[Term, ...]:
    return tuple([terms.get(term, term) if isinstance(term, Var) else term for term in args])


def renumbered(literal: Literal, terms: Mapping[int, Term]) -> Literal:
    """Return the literal with its variables replaced by `terms`, which is keyed by number for fast lookup."""
    match literal:
        case Call(predicate, types, args, subset):
            return Call(predicate, types, renumbered_terms(args, terms), subset)
        case Scan(signature, args):
            return Scan(signature, renumbered_terms(args, terms))
        case _:
            return mapped(literal, lambda term: terms.get(term.number, term) if isinstance(term, Var) else term)


def renumbered_terms(args: tuple[Term, ...], terms: Mapping[int, Term]) -> tuple[Term, ...]:
    return tuple([terms.get(term.number, term) if isinstance(term, Var) else term for term in args])


# ---- clauses --------------------------------------------------------------------------------------------------


@hashed_once
@value
class Pattern:
    """A call's adornment: its predicate, its types, and its constant names. Values are not part of it."""

    predicate: str
    types: tuple[str, ...]
    consts: tuple[Const | Other | None, ...]
    subset: ClauseSubset | Path | Core = ClauseSubset.WHOLE
    _hash: int = field(init=False, repr=False, compare=False)

    @property
    def is_path(self) -> bool:
        return isinstance(self.subset, Path)

    @property
    def params(self) -> tuple[Term, ...]:
        """Return its constants, and a variable for each open argument, numbered by position."""
        return tuple(const or Var(i, type=name) for i, (const, name) in enumerate(zip(self.consts, self.types)))

    def __str__(self) -> str:
        shown = (str(c) if c else t for c, t in zip(self.consts, self.types))
        return f"{self.predicate}{self.subset}({', '.join(shown)})"


def pattern_of(call: Call) -> Pattern:
    """Return the call's pattern, which keeps only the constants of type String (names).

    Ids are left open: they appear in the middle of planning, and any rule may lead to one.
    """
    try:
        return call._pattern
    except AttributeError:  # the first time
        made = _pattern_of(call)
        object.__setattr__(call, "_pattern", made)
        return made


def _pattern_of(call: Call) -> Pattern:
    named = zip(call.types, call.args)
    consts = tuple([arg if kind == STRING and isinstance(arg, (Const, Other)) else None for kind, arg in named])
    return Pattern(call.predicate, call.types, consts, call.subset)


@value
class Clause:
    """The pattern's predicate holds for `params` if the body holds. Variable numbers are local to the clause."""

    params: tuple[Term, ...]
    body: tuple[Literal, ...]
    _variables: tuple[Var, ...] = field(init=False, repr=False, compare=False)  # set when `variables` is first read

    @property
    def variables(self) -> tuple[Var, ...]:
        try:
            return self._variables
        except AttributeError:
            every = (self.params, *map(terms_of, self.body))
            found = tuple({term for terms in every for term in terms if isinstance(term, Var)})
            object.__setattr__(self, "_variables", found)
            return found

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.params))}) if {' and '.join(map(str, self.body)) or 'true'}"


# Returns the clauses of a pattern. A pass turns one such function into another.
ClausesOf = Callable[[Pattern], tuple[Clause, ...]]


def calls_made(clauses: Iterable[Clause]) -> list[Pattern]:
    """Return the pattern of each call in the clauses, with repetitions, but without negated calls."""
    return [pattern_of(each) for clause in clauses for each in clause.body if isinstance(each, Call)]


def canonical(clause: Clause) -> Clause:
    """Return the clause with its variables numbered from 0 in order of appearance; itself if they are already."""
    found: dict[int, Var] = {}
    for terms in (clause.params, *map(terms_of, clause.body)):
        for term in terms:
            if isinstance(term, Var) and term.number not in found:
                found[term.number] = term
    if [*found] == [*range(len(found))]:
        return clause
    numbers: dict[int, Term] = {old: term.numbered(new) for new, (old, term) in enumerate(found.items())}
    body = tuple([renumbered(literal, numbers) for literal in clause.body])
    return Clause(renumbered_terms(clause.params, numbers), body)


# ---- limits -------------------------------------------------------------------------------------------------------
# The deadline of planning, in CPU time: every loop whose length depends on the rules checks it.
#
# Planning holds the GIL, so unlimited planning would stop the whole worker process. CPU time does not depend on how
# busy the machine is, so load does not decide which questions are rejected.

PATIENCE = 1.0  # seconds of CPU time
REFUSED_FOR = 60.0  # seconds; then planning is retried, since chance decides if it is close to the limit
MOST_REFUSED = 1000  # rejected shapes to remember
_STEPS_BETWEEN_LOOKS = 100  # between checks of the clock; one or two milliseconds


class _Deadline(threading.local):
    """This thread's deadline in its CPU time; `seconds` is the limit that it was computed from, for the message."""

    until = inf
    seconds = inf
    steps = 0
    many = inf  # step count at which to call `gives_up`
    gives_up: Callable[[], bool]
    spent: Counter[Hashable]

    def __init__(self) -> None:
        self.spent = Counter()


_deadline = _Deadline()


@contextmanager
def bounded(seconds: float) -> Iterator[bool]:
    """Limit the CPU time of the code inside; 0 is no limit. An outer limit still applies.

    Yields whether this limit ends before the outer one. `tick` raises `PlannedTooLong` when the time is over. The
    counts of `spend` start at zero.
    """
    outer = _deadline.until, _deadline.seconds
    spent, _deadline.spent = _deadline.spent, Counter()
    until = time.thread_time() + (seconds or inf)
    is_nearest = until < _deadline.until
    if is_nearest:
        _deadline.until, _deadline.seconds = until, seconds
    try:
        yield is_nearest
    finally:
        _deadline.until, _deadline.seconds = outer
        _deadline.spent = spent


def steps_taken() -> int:
    """Return this thread's total number of steps, in all loops."""
    return _deadline.steps


@contextmanager
def within(steps: int, gives_up: Callable[[], bool]) -> Iterator[None]:
    """Once `steps_taken` exceeds `steps`, call `gives_up` once; if it returns True, raise `InliningTooLarge`."""
    _deadline.many, _deadline.gives_up = steps, gives_up
    try:
        yield
    finally:
        _deadline.many = inf


def tick() -> None:
    """Count one step of a loop. Every so often, let other threads run, and raise if the time is over."""
    _deadline.steps += 1
    if _deadline.steps % _STEPS_BETWEEN_LOOKS == 0:
        time.sleep(0)  # releases the GIL: a thread that needs it would otherwise wait 5 ms each time
        if time.thread_time() > _deadline.until:
            raise PlannedTooLong(_deadline.seconds)
        if _deadline.steps > _deadline.many:
            _deadline.many = inf
            if _deadline.gives_up():
                raise InliningTooLarge


def check() -> None:
    """Raise if the time is over: for steps that take longer than those that `tick` counts."""
    if time.thread_time() > _deadline.until:
        raise PlannedTooLong(_deadline.seconds)


@contextmanager
def uncounted() -> Iterator[None]:
    """Exclude the time of the code inside from the limit: it is not planning, or has its own limit."""
    until, began = _deadline.until, time.thread_time()
    _deadline.until = inf
    try:
        yield
    finally:
        _deadline.until = until + time.thread_time() - began


def spend(what: Hashable) -> None:
    """Count one step for this rule or predicate."""
    _deadline.spent[what] += 1


def spent() -> Counter[Hashable]:
    """Return the steps counted by `spend` since planning began, per rule or predicate."""
    return _deadline.spent


@dataclass
class Refusals:
    """Recently rejected questions, which are not planned again for a while."""

    known: dict[Hashable, tuple[TooComplex, float]] = field(default_factory=dict)

    def repeat(self, asked: Hashable) -> None:
        """Raise the error again if this was rejected recently."""
        refused, until = self.known.get(asked, (None, 0.0))
        if refused is not None and time.monotonic() < until:
            raise refused.with_traceback(None)

    def remember(self, asked: Hashable, refused: TooComplex) -> None:
        if len(self.known) >= MOST_REFUSED:
            self.known.clear()
        self.known[asked] = refused, time.monotonic() + REFUSED_FOR
