"""Review access as of a moment, or what was gained and lost between two."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from checks.asking import run
from checks.asking.question import FEW, Page, Question
from checks.asking.snapshot import Snapshot, snapshot
from checks.compare.kinds import (
    AccessKind,
    access_kinds,
    exceptions,
    kinds_that_differ,
    missing,
    values_in_rules,
    without_covered,
)
from checks.engine.answers import Row
from checks.engine.errors import TooComplex, UnboundVariable
from checks.explain.cases import ANY
from facts.mentioned_ids import MentionedAsOf, changed_facts_between
from facts.numbering import Numbered, numbers_as_of
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.moments import AsOf, Moment, NoSuchMoment, check_kept, moment_of, present
from policy.rules.program import Program
from policy.values import BOOLEAN, INTEGER, STRING, Value

# ---- Who had what as of a moment, or what was gained and lost between two moments ---------------------------------
# Each kind of access (a type of actors, an action, a type of resources) is asked about some resources at a time, as
# of each moment, by the policy of that moment: "which actors may do this on these?" Which kinds there are, and which
# of them can have changed, follows from the policies and from the facts that changed (`reached`): there may be too
# many of them, never too few. If only certain actors or resources can have changed, only those are asked about.

MOST_RESOURCES = 500  # in one question
MOST_ROWS = 100_000  # of one answer; if there are more, fewer resources are asked about at a time
MOST_REFUSED = 1_000  # resources of a kind, after which no more of them are asked about
_FIRST_RESOURCES = 50
_NO_INTEGER = str(2**62 + 1)  # stands for all integers that nothing mentions


class AccessState:
    HAS, GAINED, LOST = "has", "gained", "lost"
    KEPT = "kept"  # an exception to a line before it about every value: it was the same at both moments


class Access(NamedTuple):
    """Who may do what; an id of ANY stands for every value that no other line of the same answer is about."""

    state: str
    actor: Value
    action: Value
    resource: Value


class NotAnswered(NamedTuple):
    """A kind of access that the engine refused to answer, for so many resources (0: for all)."""

    kind: AccessKind
    resources: int
    example: str
    reason: str

    def __str__(self) -> str:
        about = f" about {self.resources:,} of the resources, such as {self.example}" if self.resources else ""
        return f"{self.kind}{about}: {self.reason}"


class Wanted(NamedTuple):
    """What a review is narrowed to; empty texts leave everything in."""

    actor_type: str = ""
    action: str = ""
    resource_type: str = ""
    actor: str = ""  # the id of one of the type


EVERYTHING = Wanted()


class Progress(NamedTuple):
    kind: AccessKind
    place: int  # of the kind, from 1
    kinds: int
    asked: int  # resources, or actors
    type: str
    total: Callable[[], int]  # how many there are to ask about: looked up only if somebody wants to know


class OutOfTime(Exception):
    """The time for a review is over."""


# ---- moments -------------------------------------------------------------------------------------------------------


def moments_reviewed(
    environment_id: int, *asked: AsOf | None, called: Sequence[str] = ("as_of", "as_of"), now: Moment | None = None
) -> tuple[Moment, ...]:
    """Return the moments of a review. None stands for `now`, or for the present if that is None too.

    `called` has the moments' names for error messages.
    """
    found = tuple([_moment(environment_id, each, name, now) for each, name in zip(asked, called)])
    orders = [(each.revision, each.at) for each in found]
    if orders != sorted(orders):
        raise NoSuchMoment(f"the first moment (revision {orders[0][0]}) is after the second (revision {orders[1][0]})")
    return found


def _moment(environment_id: int, asked: AsOf | None, called: str, now: Moment | None) -> Moment:
    found = now if asked is None else moment_of(environment_id, asked, called=called)
    return found or present(environment_id)


# ---- the review ------------------------------------------------------------------------------------------------------


@dataclass
class Review:
    """Reviews one moment, or compares two. It does not remember the lines that it has yielded."""

    environment_id: int
    moments: tuple[Moment, ...]
    wanted: Wanted = EVERYTHING
    until: float = inf  # by the monotonic clock
    report: Callable[[Progress], None] = lambda progress: None
    known: Numbered = field(init=False)
    _counts: dict[str, int] = field(default_factory=dict)
    programs: tuple[Program, ...] = field(init=False)

    def __post_init__(self):
        self.known = numbers_as_of(self.environment_id)
        self.programs = tuple([_program(moment) for moment in self.moments])
        for option, name in (("actor", self.wanted.actor_type), ("resource", self.wanted.resource_type)):
            if name and not any(program.knows(name) for program in self.programs):
                raise AuthzError(f"the policy has no {option} type `{name}`")

    def lines(self) -> Iterator[Access | NotAnswered]:
        """Yield all lines, by kinds and then by resources; raise OutOfTime if there is no time left."""
        kinds = self.kinds()
        for place, kind in enumerate(kinds, 1):
            if any(self._can_hold(kind)):
                yield from self.lines_of(kind, place, len(kinds))
        check_kept(self.environment_id, self.moments[0].revision)  # what was pruned meanwhile may have been missed

    def kinds(self) -> list[AccessKind]:
        if len(self.moments) == 1:
            found = access_kinds(self.programs[0], self.known.numbers)
        else:
            changes = changed_facts_between(self.known, *self.moments)
            clock = self.moments[0].at // 1_000_000 != self.moments[1].at // 1_000_000
            old, new = self.programs
            found = kinds_that_differ(old, new, changes, self.known.numbers, clock)
        return [each for kind in found if (each := kind.narrowed(*self.wanted)) is not None]

    def lines_of(self, kind: AccessKind, place: int = 1, kinds: int = 1) -> Iterator[Access | NotAnswered]:
        def progress(asked: int, name: str, total: Callable[[], int]) -> None:
            if time.monotonic() > self.until:
                raise OutOfTime
            self.report(Progress(kind, place, kinds, asked, name, total))

        if kind.actors is not None and kind.resources is None:
            by_actors = _AskingByActors(self, kind)
            actors = sorted(kind.actors)
            for start in range(0, len(actors), FEW):
                progress(start, kind.actor, actors.__len__)
                yield from by_actors.about(tuple(actors[start : start + FEW]))
            if not by_actors.left:
                return
            kind = replace(kind, actors=frozenset(by_actors.left))
        mentioned = MentionedAsOf(self.known.numbers, kind.resource, self.moments)
        asking = _Asking(self, kind)
        asked = 0
        for ids in self._resources(kind, mentioned, asking):
            progress(asked, kind.resource, lambda: self._count(kind, mentioned))
            yield from asking.about(ids)
            asked += len(ids)
            if asking.gives_up:
                break
        yield from asking.not_answered()

    def _count(self, kind: AccessKind, mentioned: MentionedAsOf) -> int:
        if kind.resources is not None:
            return len(kind.resources)
        if kind.resource not in self._counts:
            self._counts[kind.resource] = mentioned.count()
        return self._counts[kind.resource]

    def answers(self, moment: Moment, question: Question, most: int) -> Sequence[Row]:
        """Return the answers as of the moment; refuse `most` rows or more (0: no limit)."""
        with snapshot(self.environment_id, moment.version, (), frozenset(), moment) as session:
            found = session.first_answers(question, most)
        if most and len(found) >= most:
            raise _TooMany
        return found

    def _resources(self, kind: AccessKind, mentioned: MentionedAsOf, asking: _Asking) -> Iterator[tuple[str, ...]]:
        """Yield the ids to ask about, some at a time. Unless all are known, ANY comes first, and alone."""
        if kind.resources is not None:
            yield from _parts(sorted(kind.resources), asking)
            return
        named = values_in_rules(self.programs, kind.resource)
        if kind.resource == BOOLEAN:
            yield ("false", "true")
            return
        yield (ANY,)
        yield from _parts(sorted(named), asking)
        last = ""
        while found := mentioned.after(last, asking.size):
            last = found[-1]
            ids = tuple([text for text in found if text not in named])
            if ids:
                yield ids

    def _can_hold(self, kind: AccessKind) -> list[bool]:
        found = []
        for moment in self.moments:
            with snapshot(self.environment_id, moment.version, (), frozenset(), moment) as session:
                try:
                    found.append(session.can_hold(kind.question((ANY,))))
                except AuthzError:
                    found.append(True)  # asking says what is wrong
        return found


def _program(moment: Moment) -> Program:
    assert moment.version is not None, "a moment that is reviewed has a policy"
    return program_of_version(moment.version)


def _parts(ids: list[str], asking: _Asking) -> Iterator[tuple[str, ...]]:
    start = 0
    while start < len(ids):
        part = tuple(ids[start : start + asking.size])
        start += len(part)
        yield part


@dataclass
class _Asking:
    """Asks about resources of a kind: more of them at a time as long as answers are small.

    If both actors and resources are known, it asks for all actors on the resources, which is quicker than asking which
    of the known actors. If that is refused, it asks about the known actors.
    """

    review: Review
    kind: AccessKind
    size: int = _FIRST_RESOURCES
    refused: int = 0
    example: str = ""
    reason: str = ""
    is_refused_whole: bool = False
    asked: AccessKind = field(init=False)

    def __post_init__(self):
        is_of_some = self.kind.resources is None or self.review.wanted.actor
        self.asked = self.kind if is_of_some else replace(self.kind, actors=None)

    @property
    def gives_up(self) -> bool:
        return self.is_refused_whole or self.refused >= MOST_REFUSED

    def about(self, ids: tuple[str, ...]) -> Iterator[Access]:
        """Ask about these resources, and about fewer at a time if that is refused or too much."""
        waiting = [ids]
        while waiting and not self.gives_up:
            part = waiting.pop()
            if time.monotonic() > self.review.until:
                raise OutOfTime
            try:
                sides = [self._rows(moment, part) for moment in self.review.moments]
            except NoSuchMoment:
                raise
            except AuthzError as refusal:
                self._retreat(part, refusal, waiting)
            else:
                if sum(map(len, sides)) * 4 < MOST_ROWS:
                    self.size = min(2 * self.size, MOST_RESOURCES)
                yield from compared(self.kind, sides)

    def not_answered(self) -> Iterator[NotAnswered]:
        if self.is_refused_whole:
            yield NotAnswered(self.kind, 0, "", self.reason)
        elif self.refused >= MOST_REFUSED:
            reason = f"{self.reason}; after so many, the others were not asked about"
            yield NotAnswered(self.kind, self.refused, self.example, reason)
        elif self.refused:
            yield NotAnswered(self.kind, self.refused, self.example, self.reason)

    def _retreat(self, part: tuple[str, ...], refusal: AuthzError, waiting: list[tuple[str, ...]]) -> None:
        if self.asked.actors != self.kind.actors:
            self.asked = self.kind
            waiting.append(part)
        elif isinstance(refusal, TooComplex | UnboundVariable):
            self.is_refused_whole, self.reason = True, refusal.message
        elif len(part) > 1:
            waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
            self.size = max(1, self.size // 2)
        else:
            self._refuse(part[0], refusal)

    def _refuse(self, text: str, refusal: AuthzError) -> None:
        if not self.refused:
            self.example, self.reason = f"{self.kind.resource}:{text or '*'}", refusal.message
        self.refused += 1

    def _rows(self, moment: Moment, ids: tuple[str, ...]) -> set[Row]:
        """Return (actor, action, resource) as of the moment: None is every value, and ANY one that nothing mentions."""
        question = self.asked.question(tuple([asked_id(self.kind.resource, text) for text in ids]))
        found = self.review.answers(moment, question, MOST_ROWS if len(ids) > 1 else 0)
        return without_covered({each for row in found for each in self.kind.rows(row, ids)})


@dataclass
class _AskingByActors:
    """Asks what some actors may do on any resource. `left` are the actors for whom that is refused or too much."""

    review: Review
    kind: AccessKind
    left: list[str] = field(default_factory=list)

    def about(self, actors: tuple[str, ...]) -> Iterator[Access]:
        waiting = [actors]
        while waiting:
            part = waiting.pop()
            if time.monotonic() > self.review.until:
                raise OutOfTime
            sides = self._sides(part)
            if sides is not None:
                yield from compared(self.kind, sides)
            elif len(part) > 1:
                waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
            else:
                self.left += part

    def _sides(self, actors: tuple[str, ...]) -> list[set[Row]] | None:
        """Return what these actors may do as of each moment; None if that is refused, or about every resource."""
        kind = replace(self.kind, actors=frozenset(actors))
        try:
            found = [self.review.answers(moment, kind.question(None), MOST_ROWS) for moment in self.review.moments]
        except NoSuchMoment:
            raise
        except AuthzError:
            return None  # asking by resources says what is wrong
        if any(row[-1] is None for rows in found for row in rows):
            return None
        return [without_covered({each for row in rows for each in kind.rows(row, ())}) for rows in found]


def compared(kind: AccessKind, sides: list[set[Row]]) -> Iterator[Access]:
    """Yield who has access; or, of two sides, what was lost and gained, and the exceptions that were kept."""
    if len(sides) == 1:
        found = [(AccessState.HAS, row) for row in sides[0] if kind.reports(row[1])]
    else:
        old, new = sides
        lost, gained = (
            [row for row in rows if kind.reports(row[1])] for rows in (missing(old, new), missing(new, old))
        )
        # Every action may be lost here, but one with a kind of its own kept.
        kept = without_covered(exceptions(gained, old) | exceptions(lost, new))
        found = [(AccessState.LOST, row) for row in lost] + [(AccessState.GAINED, row) for row in gained]
        shown = (row for row in kept if kind.reports(row[1]) or not _differs_for_all(row, old, new))
        found += [(AccessState.KEPT, row) for row in shown]
    for state, (actor, action, resource) in sorted(found, key=_in_order):
        values = Value(kind.actor, actor or ANY), Value(STRING, action or ANY), Value(kind.resource, resource or ANY)
        yield Access(state, *values)


def _differs_for_all(row: Row, old: set[Row], new: set[Row]) -> bool:
    """Say whether all actors lost or gained it: the action's own kind tells then who did not."""
    _, action, resource = row
    was, now = (any((None, each, resource) in rows for each in (action, None)) for rows in (old, new))
    return was != now


class _TooMany(AuthzError):
    def __init__(self) -> None:
        super().__init__(f"it has {MOST_ROWS:,} answers or more")


_PLACES = {AccessState.LOST: 0, AccessState.GAINED: 1, AccessState.KEPT: 2, AccessState.HAS: 0}


def _in_order(line: tuple[str, Row]) -> tuple:
    state, (actor, action, resource) = line
    return resource or "", action or "", state == AccessState.KEPT, actor or "", _PLACES[state]


def asked_id(type_name: str, text: str) -> str:
    return _NO_INTEGER if text == ANY and type_name == INTEGER else text


# ---- in order -----------------------------------------------------------------------------------------------------
# Reads answers with one column in order, as of one moment or two, a part at a time: however many there are.

ROWS = 1_000  # that are read at once
ONE_SECONDS = 5.0  # for a question about one actor, or one resource


class InOrder:
    """Reads the answers of a question with one column side by side, as of one moment or two, a part at a time."""

    def __init__(self, sides: Sequence[Snapshot], question: Question, of_another: Question, text: str):
        """`of_another` asks the same about a value that nothing mentions: if that holds, every value is an answer."""
        self.sides, self.question, self.text = sides, question, text
        self.every = [side.holds(of_another) for side in sides]

    def _read(self, side: Snapshot, page: Page) -> list[Row]:
        with run.limited(ONE_SECONDS):
            return side.page(self.question, page)

    def after(self, text: str | None) -> tuple[list[tuple[str, str | None]], str | None]:
        """Return the lines after an id, as (state, id or None for every value), and the last id that they reach.

        That last id is None if no line follows.
        """
        pages = [self._read(side, Page(ROWS, text or "", None, self.text)) for side in self.sides]
        lasts = [str(rows[-1][0]) for rows in pages if len(rows) >= ROWS]
        last = min(lasts) if lasts else None
        ids = [{str(row[0]) for row in rows if last is None or str(row[0]) <= last} for rows in pages]
        is_first = text is None
        return sorted(self._changes(ids, is_first), key=lambda line: line[1] or ""), last

    def _changes(self, ids: list[set[str]], is_first: bool) -> Iterator[tuple[str, str | None]]:
        if len(ids) == 1:
            states = [(AccessState.HAS, set() if self.every[0] else ids[0])]
            every = AccessState.HAS if self.every[0] else None
        else:
            was, now = self.every
            every = None if was == now else AccessState.LOST if was else AccessState.GAINED
            lost, gained = (AccessState.LOST, ids[0] - ids[1]), (AccessState.GAINED, ids[1] - ids[0])
            states = [lost, gained] if not (was or now) else []
            if every:  # every value was lost or gained, except the ids that the other side lists: they are kept
                states = [(AccessState.KEPT, ids[1] if was else ids[0])]
        if every and is_first:
            yield every, None
        for state, some in states:
            for each in some:
                yield state, each
