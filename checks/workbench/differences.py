"""Asks two policies the same questions, kind by kind: where they answer otherwise, and of how much that was seen.

All questions of a kind are one question with open variables, where it can be answered at once. Otherwise they are
asked value by value of one variable (`Drawer.anchor`), some values in a statement; and where even that cannot be
listed ("all but some"), for values drawn for the other variables.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from itertools import product

from checks.asking import run
from checks.asking.question import by_ids
from checks.asking.snapshot import Snapshot
from checks.engine.answers import Row
from checks.engine.errors import CannotEnumerate, UnboundVariable
from checks.errors import QueryTooSlow
from checks.explain.proof import Goal
from checks.workbench.kinds import Kind
from checks.workbench.samples import Drawer, Drawn
from facts.drawing import more_than
from policy.errors import AuthzError

MOST_ROWS = 300_000  # of one answer that are looked at
_MOST_AT_ONCE, _OTHERS = 100, 100  # values that are drawn: in one statement, and for each other variable
_FEW_FACTS = 20_000
_WEIGHT = 4  # of a decision's share of the time
_STEPS = 8  # that a share should be good for, before they become larger
_MOST_SKIPPED = 3
_SHORTEST = 0.25  # seconds that a question has at least
_LATE = "there was no time left"
_SLOW = "in the time that there is, not even questions about one value are answered"


@dataclass(slots=True)
class Tally:
    """Answers that were seen: of either policy, only of the new one, only of the old one. Of those some are kept."""

    most: int  # of each that are kept
    answers: int = 0
    gained: int = 0
    lost: int = 0
    examples: tuple[list[Row], list[Row]] = field(default_factory=lambda: ([], []))  # lost, gained

    @property
    def flips(self) -> int:
        return self.gained + self.lost

    def count(self, old: set[Row], new: set[Row]) -> None:
        lost, gained = missing(old, new), missing(new, old)
        self.answers += len(old | new)
        self.gained += len(gained)
        self.lost += len(lost)
        for kept, rows in zip(self.examples, (lost, gained)):
            kept += nsmallest(self.most - len(kept), rows, key=by_ids)


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of a kind of question: how many answers either policy gives, and how many only one of them gives.

    `drawn` are the values that were asked about, where there are others; `problem` is why nothing was asked.
    """

    kind: Kind
    tally: Tally
    drawn: tuple[Drawn, ...] = ()
    problem: str = ""
    is_refused: bool = False  # by the new policy alone: it would answer no question of the kind

    @property
    def examples(self) -> Iterator[tuple[Goal, bool]]:
        """Answers that differ, and whether they are the new policy's: some of those that there are."""
        for rows, is_new in zip(self.tally.examples, (False, True)):
            yield from ((self.kind.goal(row), is_new) for row in sorted(rows, key=by_ids))

    @property
    def is_all(self) -> bool:
        """Whether no other answer of the kind can differ."""
        return not (self.drawn or self.problem)

    @property
    def extent(self) -> str:
        """Of which questions this is known."""
        if self.problem:
            return f"not asked: {self.problem}"
        return f"asked about {' and '.join(map(str, self.drawn))}" if self.drawn else "all"


class _Refused(AuthzError):
    """Not even one question is answered by a policy."""

    def __init__(self, reason: AuthzError, is_new: bool):
        self.is_new = is_new
        super().__init__(f"{'the new' if is_new else 'the active'} policy answers no such question: {reason.message}")


class _TooMany(AuthzError):
    def __init__(self):
        super().__init__(f"it has more than {MOST_ROWS:,} answers")




@dataclass
class Comparison:
    sides: tuple[Snapshot, Snapshot]
    drawer: Drawer
    deadline: float
    most: int  # answers that differ that are kept, of each kind

    def compared(self, kinds: list[Kind]) -> list[Compared]:
        """Each kind. What cannot be answered as one question has a share of the time, and then of what is left."""
        found: dict[Kind, Compared] = {}
        walks: dict[Kind, _Walk] = {}
        for index, kind in enumerate(kinds):
            until = self._share(kinds[index:])
            whole = self._whole(kind, until) if self._is_small or not kind.places else None
            if whole is not None:
                found[kind] = whole
            elif kind.places and time.monotonic() < self.deadline:
                walks[kind] = _Walk(self, kind, *self.drawer.anchor(kind))
                walks[kind].go_on(until)
        self._go_on(list(walks.values()))
        found |= {kind: walk.told() for kind, walk in walks.items()}
        return [found.get(kind) or Compared(kind, Tally(0), problem=_LATE) for kind in kinds]

    def _share(self, kinds: list[Kind]) -> float:
        """When the first of the kinds has had its time: decisions have more of it than what they are made of."""
        weights = [_WEIGHT if kind.is_decision else 1 for kind in kinds]
        now = time.monotonic()
        return now + max(0.0, self.deadline - now) * weights[0] / sum(weights)

    def _go_on(self, walks: list[_Walk]) -> None:
        while (walks := [walk for walk in walks if walk.goes_on]) and time.monotonic() < self.deadline:
            for index, walk in enumerate(walks):
                walk.go_on(self._share([each.kind for each in walks[index:]]))

    @cached_property
    def _is_small(self) -> bool:
        """Whether there are so few facts that all questions of a kind are best asked at once."""
        return not more_than(_FEW_FACTS, self.sides[0].numbers.values())

    def _whole(self, kind: Kind, until: float) -> Compared | None:
        """All questions of the kind as one; None where that is too much, or cannot be listed."""
        tally = Tally(self.most)
        try:
            tally.count(*self.both(kind, {}, (until - time.monotonic()) / 2))
        except AuthzError:
            return None
        return Compared(kind, tally)

    def both(self, kind: Kind, ids: Mapping[int, tuple[str, ...]], seconds: float) -> tuple[set[Row], set[Row]]:
        """What both policies answer, for given ids in some of the places."""
        old, new = (self._rows(scene, kind, ids, seconds) for scene in self.sides)
        return old, new

    def one_by_one(
        self, kind: Kind, ids: Mapping[int, tuple[str, ...]], seconds: float
    ) -> tuple[set[Row], set[Row]]:
        """The same for given ids in all of the places, where no list can be had: every question for itself."""
        until = time.monotonic() + max(seconds, _SHORTEST)
        found: tuple[set[Row], set[Row]] = (set(), set())
        for row in product(*(ids[place] for place in kind.places)):
            for is_new, rows in enumerate(found):
                if self._holds(bool(is_new), kind, row, until):
                    rows.add(row)
        return found

    def _holds(self, is_new: bool, kind: Kind, row: tuple[str, ...], until: float) -> bool:
        scene = self.sides[is_new]
        left = until - time.monotonic()
        if left <= 0:
            raise QueryTooSlow(0)
        ids = {place: (text,) for place, text in zip(kind.places, row)}
        if not kind.is_known_to(scene.program):
            return False
        try:
            with run.limited(left):
                return scene.holds(kind.question(ids)._replace(outs=()))
        except (CannotEnumerate, UnboundVariable) as reason:
            raise _Refused(reason, is_new) from None

    def _rows(self, scene: Snapshot, kind: Kind, ids: Mapping[int, tuple[str, ...]], seconds: float) -> set[Row]:
        if not kind.is_known_to(scene.program):
            return set()
        with run.limited(max(seconds, _SHORTEST)):
            rows = scene.first_answers(kind.question(ids), MOST_ROWS)
        if len(rows) >= MOST_ROWS:
            raise _TooMany
        return set(rows)


@dataclass
class _Walk:
    """Through the values of one variable of a kind, some at a time; `others` are those of its other variables."""

    comparison: Comparison
    kind: Kind
    place: int
    values: Drawn
    others: dict[int, Drawn] = field(default_factory=dict)
    tally: Tally = field(init=False)
    asked: list[str] = field(default_factory=list)
    is_patient: bool = False  # asks every question for itself
    skipped: int = 0
    size: int = 1
    reason: str = _LATE
    is_refused: bool = False

    def __post_init__(self):
        self.tally = Tally(self.comparison.most)

    @property
    def goes_on(self) -> bool:
        return len(self.asked) + self.skipped < len(self.values.texts) and self.skipped < _MOST_SKIPPED

    def go_on(self, until: float) -> None:
        """At least one step."""
        while self.goes_on:
            begun = time.monotonic()
            is_answered = self._step(until - begun)
            if time.monotonic() > until:
                break
            if is_answered and (time.monotonic() - begun) * _STEPS < until - begun:
                self.size = min(2 * self.size, _MOST_AT_ONCE)

    def _step(self, seconds: float) -> bool:
        """Whether some more are answered."""
        start = len(self.asked) + self.skipped
        chunk = self.values.texts[start : start + self.size]
        ids = {place: drawn.texts for place, drawn in self.others.items()}
        ask = self.comparison.one_by_one if self.is_patient else self.comparison.both
        try:
            found = ask(self.kind, ids | {self.place: chunk}, seconds)
        except AuthzError as problem:
            self._retreat(problem)
            return False
        self.tally.count(*found)
        self.asked += chunk
        return True

    def _retreat(self, problem: AuthzError) -> None:
        """What cannot be listed is asked about given values, then one by one; what is too much, about fewer."""
        self.reason = _SLOW if isinstance(problem, QueryTooSlow) else problem.message
        self.is_refused = isinstance(problem, _Refused) and problem.is_new
        cannot_be_listed = isinstance(problem, CannotEnumerate | UnboundVariable)
        places = [place for place in self.kind.places if place not in (self.place, *self.others)]
        if cannot_be_listed and places:
            self.others = {place: self.comparison.drawer.drawn(self.kind, place, _OTHERS) for place in places}
        elif cannot_be_listed and not self.is_patient:
            self.is_patient = True
        elif self.size > 1:
            self.size = max(1, self.size // 4)
        else:
            self.skipped += 1

    def told(self) -> Compared:
        asked = Drawn(self.values.type, tuple(self.asked), self.values.among, self.values.is_traced)
        if not (self.asked or asked.is_all):
            return Compared(self.kind, self.tally, problem=self.reason, is_refused=self.is_refused)
        parts = (asked, *self.others.values())
        return Compared(self.kind, self.tally, () if all(each.is_all for each in parts) else parts)


def missing(rows: set[Row], other: set[Row]) -> list[Row]:
    """The rows that the other ones do not say; one with None says all rows that are like it but there."""
    opened = {tuple(place for place, text in enumerate(row) if text is None) for row in other} - {()}
    return [row for row in rows - other if not any(_opened(row, places) in other for places in opened)]


def _opened(row: Row, places: tuple[int, ...]) -> Row:
    return tuple(None if place in places else text for place, text in enumerate(row))
