"""What one actor may do at one moment and not at another: gained, lost, and what was kept of it.

Each kind of access that the changes between the moments may have touched is one list at each of them. Where all that
can differ is about certain resources, only those are asked about.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import NamedTuple

from checks.asking import run
from checks.asking.query import allow
from checks.asking.question import Asked
from checks.asking.snapshot import Snapshot, snapshot
from checks.engine.answers import Row
from checks.errors import QueryTooSlow
from checks.explain.cases import ANY
from checks.workbench.access import met, missing, without_covered
from checks.workbench.access_kinds import AccessKind
from checks.workbench.review import MOST_ROWS, Access, NotAnswered, OutOfTime, Review, State, Wanted
from policy.errors import AuthzError
from policy.moments import Moment, NoSuchMoment
from policy.values import STRING, Value


class Change(NamedTuple):
    """What differs, in the order in which it is told; there may be very many. An id of ANY stands for every value."""

    resource_type: str
    resource: str
    action: str
    place: int  # of the state, among those below

    @property
    def state(self) -> str:
        return STATES[self.place]

    def has(self, text: str) -> bool:
        return text in self.action or text in f"{self.resource_type}:{self.resource}"

    def access(self, actor: Value) -> Access:
        return Access(self.state, actor, Value(STRING, self.action), Value(self.resource_type, self.resource))


STATES = (State.LOST, State.GAINED, State.KEPT)


@dataclass(frozen=True)
class Changes:
    """What there is to say; `is_whole` unless there was no time for the rest."""

    lines: tuple[Change, ...]
    not_answered: tuple[NotAnswered, ...] = ()
    is_whole: bool = True


def changes_of(
    environment_id: int, actor: Value, moments: tuple[Moment, Moment], wanted: Wanted, seconds: float
) -> Changes:
    """Compare what the actor may do, by the policy of each moment; `wanted` is of that actor."""
    until = time.monotonic() + seconds
    review = Review(environment_id, moments, wanted, until)
    lines: set[Change] = set()  # of which two kinds may find the same
    refused: list[NotAnswered] = []
    is_whole = True
    with run.question_time(), run.snapshot(), ExitStack() as stack:
        before, after = [stack.enter_context(_session(environment_id, each)) for each in moments]
        comparison = _Comparison(review, actor, (before, after), lines, refused)
        try:
            for kind in review.kinds():
                comparison.compare(kind)
        except (OutOfTime, QueryTooSlow):
            is_whole = False
    return Changes(tuple(sorted(lines)), tuple(refused), is_whole)


def _session(environment_id: int, moment: Moment) -> AbstractContextManager[Snapshot]:
    return snapshot(environment_id, moment.version, (), frozenset(), moment)


@dataclass(frozen=True)
class _Comparison:
    review: Review
    actor: Value
    sides: tuple[Snapshot, Snapshot]
    lines: set[Change]
    refused: list[NotAnswered]

    def compare(self, kind: AccessKind) -> None:
        if time.monotonic() > self.review.until:
            raise OutOfTime
        ids = None if kind.resources is None else tuple(sorted(kind.resources))
        try:
            old, new = (self._rows(side, kind, ids) for side in self.sides)
        except (NoSuchMoment, QueryTooSlow):
            raise
        except AuthzError:
            self._compare_by_resources(kind)
            return
        for place, rows in enumerate(_compared(kind, old, new)):
            self.lines.update([Change(kind.resource, each or ANY, action or ANY, place) for action, each in rows])

    def _compare_by_resources(self, kind: AccessKind) -> None:
        """Ask resource by resource what cannot be listed; which also says what is wrong."""
        for line in self.review.lines_of(replace(kind, actors=frozenset((self.actor.id,)))):
            if isinstance(line, NotAnswered):
                self.refused.append(line)
            else:
                place = STATES.index(line.state)
                self.lines.add(Change(line.resource.type, line.resource.id, line.action.id, place))

    def _rows(self, side: Snapshot, kind: AccessKind, ids: tuple[str, ...] | None) -> set[Row]:
        """Return what the actor may do, as (action, resource); None is every value."""
        action = Asked(STRING, None if kind.action is None else (kind.action,))
        is_open = ids is None or len(ids) > 1
        outs = (*(["action"] if kind.action is None else []), *(["resource"] if is_open else []))
        question = allow(Asked(self.actor.type, (self.actor.id,)), action, Asked(kind.resource, ids), outs)
        found = side.first_answers(question, MOST_ROWS) if outs else side.answers(question)
        if len(found) >= MOST_ROWS:
            raise _TooMany
        rows = set(_whole(found, kind.action, None if is_open else (ids or ())[0], outs))
        return without_covered(rows)


def _whole(found: Iterable[Row], action: str | None, resource: str | None, outs: tuple[str, ...]) -> Iterator[Row]:
    """Yield the rows with an action and a resource each."""
    match outs:
        case ("action", "resource"):
            return iter(found)
        case ("resource",):
            return ((action, row[0]) for row in found)
        case ("action",):
            return ((row[0], resource) for row in found)
    return ((action, resource) for _ in found)


def _compared(kind: AccessKind, old: set[Row], new: set[Row]) -> tuple[list[Row], list[Row], set[Row]]:
    """Return what is lost, what is gained, and what is kept of those that stand for many: any action, named or not."""
    lost, gained = ([row for row in rows if kind.tells(row[0])] for rows in (missing(old, new), missing(new, old)))
    return lost, gained, without_covered(_exceptions(gained, old) | _exceptions(lost, new))


def _exceptions(changed: list[Row], other: set[Row]) -> set[Row]:
    found = (met(row, each) for row in changed if None in row for each in other)
    return {each for each in found if each is not None}


class _TooMany(AuthzError):
    def __init__(self) -> None:
        super().__init__(f"it has more than {MOST_ROWS:,} answers")
