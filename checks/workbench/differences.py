"""Asks two policies the same questions, kind by kind, to find where their answers differ and how much was compared.

If there are few facts, all questions of a kind are asked as one question with open variables. If there are many, or if
that question is refused, they are asked by the values of one variable (`Sampler.anchor`), some values in a statement.
If even those answers cannot be listed ("all but some"), values are drawn for the other variables too.
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
from checks.explain.cases import Goal
from checks.workbench.answer_sets import missing
from checks.workbench.kinds import QuestionKind
from checks.workbench.samples import Sample, Sampler
from facts.read import count_up_to
from policy.errors import AuthzError

MOST_ROWS = 300_000  # of one answer that are looked at
_MOST_AT_ONCE, _OTHERS = 100, 100  # values: in one statement, and drawn for each other variable
_FEW_FACTS = 20_000
_WEIGHT = 4  # of decisions when time is shared; other kinds have 1
_STEPS = 8  # a step is about more values only if the time would suffice for so many steps
_MOST_SKIPPED = 3
_SHORTEST = 0.25  # seconds that a question has at least
_LATE = "there was no time left"
_SLOW = "in the time that there is, not even questions about one value are answered"


@dataclass(slots=True)
class Tally:
    """Counts the answers of either policy, and those that only one of them gives; keeps some of these as examples."""

    most: int  # examples that are kept in each direction
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

    `samples` are the values that were asked about, if not all were; `problem` is why nothing was asked.
    """

    kind: QuestionKind
    tally: Tally
    samples: tuple[Sample, ...] = ()
    problem: str = ""
    is_refused: bool = False  # by the new policy alone: it would answer no question of the kind

    @property
    def examples(self) -> Iterator[tuple[Goal, bool]]:
        """Yield some answers that differ, each with whether the new policy gives it."""
        for rows, is_new in zip(self.tally.examples, (False, True)):
            yield from ((self.kind.goal(row), is_new) for row in sorted(rows, key=by_ids))

    @property
    def is_all(self) -> bool:
        """Say whether no other answer of the kind can differ."""
        return not (self.samples or self.problem)

    @property
    def extent(self) -> str:
        """Return in words which questions of the kind were asked."""
        if self.problem:
            return f"not asked: {self.problem}"
        return f"asked about {' and '.join(map(str, self.samples))}" if self.samples else "all"


class _Refused(AuthzError):
    """A policy answers not even one question of a kind."""

    def __init__(self, reason: AuthzError, is_new: bool):
        self.is_new = is_new
        super().__init__(f"{'the new' if is_new else 'the active'} policy answers no such question: {reason.message}")


class _TooMany(AuthzError):
    def __init__(self):
        super().__init__(f"it has {MOST_ROWS:,} answers or more")


@dataclass
class PolicyComparison:
    sides: tuple[Snapshot, Snapshot]
    sampler: Sampler
    deadline: float
    most: int  # answers that differ that are kept, of each kind

    def compared(self, kinds: list[QuestionKind]) -> list[Compared]:
        """Compare each kind within its share of the time, as one question or by values.

        Time that is left over is shared again by the kinds with values that were not asked about yet.
        """
        found: dict[QuestionKind, Compared] = {}
        partial: dict[QuestionKind, _ByValues] = {}
        for index, kind in enumerate(kinds):
            until = self._share(kinds[index:])
            whole = self._whole(kind, until) if self._is_small or not kind.places else None
            if whole is not None:
                found[kind] = whole
            elif kind.places and time.monotonic() < self.deadline:
                partial[kind] = _ByValues(self, kind, *self.sampler.anchor(kind))
                partial[kind].go_on(until)
        self._go_on(list(partial.values()))
        found |= {kind: each.compared() for kind, each in partial.items()}
        return [found.get(kind) or Compared(kind, Tally(0), problem=_LATE) for kind in kinds]

    def _share(self, kinds: list[QuestionKind]) -> float:
        """Return when the first kind's time is over: decisions have more time than other kinds."""
        weights = [_WEIGHT if kind.is_decision else 1 for kind in kinds]
        now = time.monotonic()
        return now + max(0.0, self.deadline - now) * weights[0] / sum(weights)

    def _go_on(self, partial: list[_ByValues]) -> None:
        while (partial := [each for each in partial if each.has_more]) and time.monotonic() < self.deadline:
            for index, each in enumerate(partial):
                each.go_on(self._share([other.kind for other in partial[index:]]))

    @cached_property
    def _is_small(self) -> bool:
        """Say whether there are so few facts that all questions of a kind are best asked at once."""
        return count_up_to(_FEW_FACTS + 1, self.sides[0].numbers.values()) <= _FEW_FACTS

    def _whole(self, kind: QuestionKind, until: float) -> Compared | None:
        """Compare all questions of the kind as one; return None if that is refused, but smaller ones may not be."""
        tally, ask = Tally(self.most), self.both if kind.places else self.one_by_one
        try:
            tally.count(*ask(kind, {}, (until - time.monotonic()) / 2))
        except AuthzError as problem:
            if kind.places:
                return None
            reason = _LATE if isinstance(problem, QueryTooSlow) else problem.message
            return Compared(kind, tally, problem=reason, is_refused=isinstance(problem, _Refused) and problem.is_new)
        return Compared(kind, tally)

    def both(self, kind: QuestionKind, ids: Mapping[int, tuple[str, ...]], seconds: float) -> tuple[set[Row], set[Row]]:
        """Return what both policies answer, for given ids in some of the places."""
        old, new = (self._rows(session, kind, ids, seconds) for session in self.sides)
        return old, new

    def one_by_one(
        self, kind: QuestionKind, ids: Mapping[int, tuple[str, ...]], seconds: float
    ) -> tuple[set[Row], set[Row]]:
        """Return the same for given ids in all of the places, by a question for each row: lists may be refused."""
        until = time.monotonic() + max(seconds, _SHORTEST)
        found: tuple[set[Row], set[Row]] = (set(), set())
        for row in product(*(ids[place] for place in kind.places)):
            for is_new, rows in zip((False, True), found):
                if self._holds(is_new, kind, row, until):
                    rows.add(row)
        return found

    def _holds(self, is_new: bool, kind: QuestionKind, row: tuple[str, ...], until: float) -> bool:
        session = self.sides[is_new]
        left = until - time.monotonic()
        if left <= 0:
            raise QueryTooSlow(0)
        if not kind.is_known_to(session.program):
            return False
        ids = {place: (text,) for place, text in zip(kind.places, row)}
        try:
            with run.limited(left):
                return session.holds(kind.question(ids)._replace(outs=()))
        except (CannotEnumerate, UnboundVariable) as reason:
            raise _Refused(reason, is_new) from None

    def _rows(
        self, session: Snapshot, kind: QuestionKind, ids: Mapping[int, tuple[str, ...]], seconds: float
    ) -> set[Row]:
        if not kind.is_known_to(session.program):
            return set()
        with run.limited(max(seconds, _SHORTEST)):
            rows = session.first_answers(kind.question(ids), MOST_ROWS)
        if len(rows) >= MOST_ROWS:
            raise _TooMany
        return set(rows)


@dataclass
class _ByValues:
    """Compares a kind by the values of one variable, some at a time; `others` has values for other variables."""

    comparison: PolicyComparison
    kind: QuestionKind
    place: int
    values: Sample
    others: dict[int, Sample] = field(default_factory=dict)
    tally: Tally = field(init=False)
    asked: list[str] = field(default_factory=list)
    is_one_by_one: bool = False  # whether each question is asked by itself
    skipped: int = 0
    size: int = 1
    reason: str = _LATE
    is_refused: bool = False

    def __post_init__(self):
        self.tally = Tally(self.comparison.most)

    @property
    def has_more(self) -> bool:
        return len(self.asked) + self.skipped < len(self.values.texts) and self.skipped < _MOST_SKIPPED

    def go_on(self, until: float) -> None:
        """Ask about more values until the time is over, but at least once; more at a time while that is quick."""
        while self.has_more:
            begun = time.monotonic()
            is_answered = self._ask_next(until - begun)
            if time.monotonic() > until:
                break
            if is_answered and (time.monotonic() - begun) * _STEPS < until - begun:
                self.size = min(2 * self.size, _MOST_AT_ONCE)

    def compared(self) -> Compared:
        asked = Sample(self.values.type, tuple(self.asked), self.values.among, self.values.is_traced)
        if not (self.asked or asked.is_all):
            return Compared(self.kind, self.tally, problem=self.reason, is_refused=self.is_refused)
        samples = (asked, *self.others.values())
        return Compared(self.kind, self.tally, () if all(each.is_all for each in samples) else samples)

    def _ask_next(self, seconds: float) -> bool:
        """Ask about the next values, and say whether that was answered."""
        start = len(self.asked) + self.skipped
        chunk = self.values.texts[start : start + self.size]
        ids = {place: sample.texts for place, sample in self.others.items()}
        ask = self.comparison.one_by_one if self.is_one_by_one else self.comparison.both
        try:
            found = ask(self.kind, ids | {self.place: chunk}, seconds)
        except AuthzError as problem:
            self._retreat(problem)
            return False
        self.tally.count(*found)
        self.asked += chunk
        return True

    def _retreat(self, problem: AuthzError) -> None:
        """Choose how to go on after a refusal.

        If the answer cannot be listed, draw values for the other variables, then ask one by one. If it is too much, ask
        about fewer values at a time. If nothing of this is left to do, skip a value.
        """
        self.reason = _SLOW if isinstance(problem, QueryTooSlow) else problem.message
        self.is_refused = isinstance(problem, _Refused) and problem.is_new
        cannot_be_listed = isinstance(problem, CannotEnumerate | UnboundVariable)
        places = [place for place in self.kind.places if place not in (self.place, *self.others)]
        if cannot_be_listed and places:
            self.others = {place: self.comparison.sampler.sample(self.kind, place, _OTHERS) for place in places}
        elif cannot_be_listed and not self.is_one_by_one:
            self.is_one_by_one = True
        elif self.size > 1:
            self.size = max(1, self.size // 4)
        else:
            self.skipped += 1
