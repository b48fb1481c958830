"""Answer the question of a page."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from checks.ask_pages.question import CHANGED, Note, PageQuestion, unknown_names, unknown_types, unmentioned
from checks.asking import run
from checks.asking.question import Page, Question
from checks.asking.snapshot import Snapshot, snapshot, trial
from checks.compare.review import Wanted
from checks.compare.review_page import asked_of_page, changes_of, moments_of_page
from checks.compare.review_walk import Stretch, page_start_from_text
from checks.errors import QueryTooSlow
from checks.explain.cases import ANY
from checks.explain.explain import ExplainedGoal, explain_calls
from facts.accept import ALL_USED, Unused
from facts.wire import MAX_ID_BYTES
from policy import rules
from policy.active import program_of_version
from policy.errors import Cancelled
from policy.moments import AsOf, Moment
from policy.values import Value

# ---- listing ------------------------------------------------------------------------------------------------------
# A page of a list of answers, read by keyset pagination; the database counts the total.
#
# The target may have several types, each with a question of its own, whose answers are concatenated. A URL names the
# answer before or after its page, so that no answer is left out or shown twice while facts change.

PAGE = 100  # answers
COUNTING = 0.1  # seconds, after which it is only known that there are more
_EVERY = "*"  # in a URL: the answer that stands for every value, which sorts before all others of its type
_LAST = chr(0x10FFFF) * (MAX_ID_BYTES // 4 + 1)  # sorts after every id


class AnswerCursor(NamedTuple):
    """Where a page starts or ends: an answer, and the index of its type."""

    type: int
    text: str | None  # None: the answer that stands for every value


class PageAddress(NamedTuple):
    """The requested page: after or before an answer, among the answers that contain a text."""

    text: str = ""
    type: str = ""
    after: str = ""
    before: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> PageAddress:
        return cls(*(fields.get(name, "") for name in ("filter", "of", "after", "before")))


@dataclass(frozen=True)
class Listed:
    """A page of answers; an id of ANY stands for every value of its type."""

    answers: tuple[Value, ...]
    address: PageAddress
    is_first: bool
    is_last: bool
    total: int | None  # of the answers with an id; None: counting takes too long
    start: int | None  # the number of the first of these on this page, from 1
    every: tuple[str, ...] = ()  # types of which every value is an answer, on this page or on another

    @property
    def named(self) -> int:
        return sum(each.id != ANY for each in self.answers)

    @property
    def previous(self) -> dict[str, str]:
        """Return the URL parameters of the previous page; empty if this is the first."""
        return {} if self.is_first or not self.answers else _fields("before", self.answers[0])

    @property
    def next(self) -> dict[str, str]:
        return {} if self.is_last or not self.answers else _fields("after", self.answers[-1])


def _fields(name: str, answer: Value) -> dict[str, str]:
    return {"of": answer.type, name: _EVERY if answer.id == ANY else answer.id}


def listed(session: Snapshot, questions: Sequence[Question], column: str, address: PageAddress) -> Listed:
    """Return the page, and the number of answers."""
    return _Listing(session, questions, [each.variables[column].type for each in questions], address).page()


class _Counted(NamedTuple):
    every: Set[int]  # indexes of types of which every value is an answer
    total: int | None
    start: int | None


@dataclass(frozen=True)
class _Listing:
    session: Snapshot
    questions: Sequence[Question]
    types: Sequence[str]
    address: PageAddress

    def page(self) -> Listed:
        found, is_first, is_last = self._found()
        answers = tuple([Value(self.types[place], ANY if text is None else text) for place, text in found])
        here = {place for place, text in found if text is None}
        if is_first and is_last:
            return Listed(answers, self.address, True, True, len(found) - len(here), 1, self._types(here))
        counted = self._counted(found[0] if found else None)
        every = self._types(here | counted.every)
        return Listed(answers, self.address, is_first, is_last, counted.total, counted.start, every)

    def _types(self, places: Set[int]) -> tuple[str, ...]:
        return tuple([self.types[place] for place in sorted(places)])

    def _found(self) -> tuple[list[AnswerCursor], bool, bool]:
        """Return the answers of the page, whether it is the first one, and whether it is the last."""
        known = self.address.type in self.types
        place = self.types.index(self.address.type) if known else 0
        if self.address.before:
            found = self._before(place, self.address.before)
            if len(found) > PAGE:
                return found[-PAGE:], False, False
        after = self.address.after if not self.address.before else ""
        found = self._after(place if after else 0, after)
        return found[:PAGE], not after, len(found) <= PAGE

    def _after(self, place: int, text: str) -> list[AnswerCursor]:
        """Return the answers after one, up to one more than a page has, which shows that there is a next page."""
        after = None if not text else "" if text == _EVERY else text
        found: list[AnswerCursor] = []
        while place < len(self.questions) and len(found) <= PAGE:
            found += self._read(place, Page(PAGE + 1 - len(found), after, None, self.address.text))
            place, after = place + 1, None
        return found

    def _before(self, place: int, text: str) -> list[AnswerCursor]:
        found: list[AnswerCursor] = []
        before, has_every = ("", False) if text == _EVERY else (text, True)
        while place >= 0 and len(found) <= PAGE:
            some = self._read(place, Page(PAGE + 1 - len(found), None, before, self.address.text)) if before else []
            if has_every and len(found) + len(some) <= PAGE:
                some = [*(each for each in self._read(place, Page(1)) if each.text is None), *some]
            found = [*some, *found]
            place, before, has_every = place - 1, _LAST, True
        return found

    def _read(self, place: int, page: Page) -> list[AnswerCursor]:
        return [AnswerCursor(place, text) for (text,) in self.session.page(self.questions[place], page)]

    def _counted(self, first: AnswerCursor | None) -> _Counted:
        """Count all answers, and those before the page's first one; the counts are None if that takes too long."""
        every: set[int] = set()
        total = before = 0
        try:
            with run.limited(COUNTING):
                for place in range(len(self.questions)):
                    every.update(place for each in self._read(place, Page(1)) if each.text is None)
                for place, question in enumerate(self.questions):
                    start = (first.text or "") if first and place == first.type else None
                    count, sooner = self.session.count(question, self.address.text, start)
                    total += count
                    before += 0 if first is None or place > first.type else sooner if place == first.type else count
        except (QueryTooSlow, Cancelled):
            return _Counted(every, None, None)
        return _Counted(every, total, before + 1 if first else None)


# ---- answers ------------------------------------------------------------------------------------------------------
# Answers the question of a page, with notes about unknown names in it, and the time that it took.


@dataclass(frozen=True)
class PageAnswer:
    """The answer on a page: an explanation, a page of answers, or changes."""

    asked: PageQuestion
    questions: Sequence[Question] = ()
    goal: ExplainedGoal | None = None
    listed: Listed | None = None
    changes: Stretch | None = None
    moments: tuple[Moment, ...] = ()  # that the question is about; empty for now
    notes: Sequence[Note] = ()
    unused: Unused = ALL_USED  # of the context
    milliseconds: float = 0.0
    whens: tuple[AsOf | None, ...] = ()  # for changes: each moment as links ask for it


def answered(asked: PageQuestion) -> PageAnswer:
    begun = time.perf_counter()
    if asked.kind.name == CHANGED:
        return _changed(asked, begun)
    with _session(asked) as session:
        questions = asked.questions(session.program)
        goal = found = None
        if asked.kind.column:
            found = listed(session, questions, asked.kind.column, PageAddress.of(asked.fields))
        else:
            (goal,) = explain_calls(session, questions[0])
        taken = time.perf_counter() - begun
        notes = [*unknown_names(session, asked, questions), *unmentioned(session, asked)]
        moments = () if asked.moment is None else (asked.moment,)
        return PageAnswer(asked, questions, goal, found, None, moments, notes, session.unused, taken * 1000)


def _session(asked: PageQuestion) -> AbstractContextManager[Snapshot]:
    """Return a session for the question's version, or for its draft if it has one."""
    if asked.text:
        return trial(asked.environment_id, rules.compile_text(asked.text), asked.context, asked.moment)
    return snapshot(asked.environment_id, asked.version.pk, asked.context, frozenset(), asked.moment)


def _changed(asked: PageQuestion, begun: float) -> PageAnswer:
    assert asked.actor is not None, "what changed is asked of an actor"
    page_start = page_start_from_text(asked.fields.get("after", ""))
    asked_of = (asked.since, asked.until)
    old, new = moments_of_page(asked.environment_id, asked_of, page_start)
    strange = [note for note in _strange(asked, old) if note in _strange(asked, new)]
    if strange:
        return PageAnswer(asked, moments=(old, new), notes=strange)
    actor = Value(asked.actor.type, asked.actor.one)
    action = asked.action.one if asked.action.ids else ""
    wanted = Wanted(actor.type, action, asked.resource.type if asked.resource else "", actor.id)
    changes = changes_of(asked.environment_id, (old, new), wanted, asked.fields.get("filter", ""), page_start)
    whens = tuple(asked_of_page(asked_of, (old, new), page_start))
    taken = time.perf_counter() - begun
    with snapshot(asked.environment_id, new.version, (), frozenset(), new) as session:
        notes = list(unmentioned(session, asked))
    return PageAnswer(asked, changes=changes, moments=(old, new), whens=whens, notes=notes, milliseconds=taken * 1000)


def _strange(asked: PageQuestion, moment: Moment) -> list[Note]:
    assert moment.version is not None, "a moment that is reviewed has a policy"
    return unknown_types(program_of_version(moment.version), asked)
