"""Answer the question of a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from checks.analysis.report import WaysOnPage, ways_on_page
from checks.ask_pages.question import CHANGED, Note, PageQuestion, unknown_names, unknown_types, unmentioned
from checks.asking import run
from checks.asking.question import Page, Question
from checks.asking.snapshot import Snapshot, snapshot, trial
from checks.compare.review import ReviewFilter
from checks.compare.review_page import asked_of_page, changes_of, moments_of_page
from checks.compare.review_walk import ReviewLines, page_start_from_text
from checks.errors import QueryTooSlow
from checks.explain.cases import ANY
from checks.explain.explain import ExplainedGoal, explain_calls
from facts.accept import ALL_USED, Unused
from facts.wire import MAX_ID_BYTES
from policy import rules
from policy.active import program_of_version
from policy.core.pagination import Listing, ListPage, Pager, key_of
from policy.errors import Cancelled
from policy.moments import AsOf, Moment
from policy.values import Value

# ---- listing ------------------------------------------------------------------------------------------------------
# A page of a list of answers; the database counts the total.
#
# The target may have several types, each with a question of its own, whose answers are concatenated.

PAGE = 100  # answers
COUNTING = 0.1  # seconds, after which it is only known that there are more
_ANSWERS = "answers"  # what cursors are of
_LAST = chr(0x10FFFF) * (MAX_ID_BYTES // 4 + 1)  # sorts after every id


class AnswerKey(NamedTuple):
    """An answer: its type, and its id, which is None if it stands for every value and so precedes all others."""

    type: str
    text: str | None

    @property
    def value(self) -> Value:
        return Value(self.type, ANY if self.text is None else self.text)


@dataclass(frozen=True)
class Listed:
    """A page of answers; an id of ANY stands for every value of its type."""

    page: ListPage[AnswerKey]
    filter: str  # a text that all answers contain
    total: int | None  # of the answers with an id; None: counting takes too long
    start: int | None  # the number of the first of these on this page, from 1
    every: tuple[str, ...] = ()  # types of which every value is an answer, on this page or on another

    @property
    def is_whole(self) -> bool:
        return not (self.page.has_previous or self.page.has_next)

    @property
    def named(self) -> int:
        return sum(each.text is not None for each in self.page.rows)

    def pager(self, url: Callable[[dict[str, str]], str]) -> Pager:
        return self.page.pager(_ANSWERS, lambda answer: answer, url)


def listed(session: Snapshot, questions: Sequence[Question], column: str, fields: Mapping[str, str]) -> Listed:
    """Return the page that a URL's fields name, and the number of answers."""
    found = _Answers(session, {each.variables[column].type: each for each in questions}, fields.get("filter", ""))
    return found.listed(*(key_of(fields.get(name), _ANSWERS) for name in ("after", "before")))


@dataclass(frozen=True)
class _Answers:
    session: Snapshot
    questions: Mapping[str, Question]  # by type
    filter: str

    def listed(self, after: Sequence[Any] | None, before: Sequence[Any] | None) -> Listed:
        keys = (AnswerKey(*key) if key and key[0] in self.questions else None for key in (after, before))
        page = Listing(self._after, self._before).page(PAGE, *keys)
        every = {each.type for each in page.rows if each.text is None}
        if not (page.has_previous or page.has_next):
            return Listed(page, self.filter, len(page.rows) - len(every), 1, self._in_order(every))
        total = start = None
        with suppress(QueryTooSlow, Cancelled), run.limited(COUNTING):
            for name in self.questions:
                every |= {name} if self._has_every(name) else set()
            total, start = self._counted(page.rows[0] if page.rows else None)
        return Listed(page, self.filter, total, start, self._in_order(every))

    def _in_order(self, types: Set[str]) -> tuple[str, ...]:
        return tuple([name for name in self.questions if name in types])

    def _after(self, key: AnswerKey | None, most: int) -> list[AnswerKey]:
        names, found = list(self.questions), list[AnswerKey]()
        for name in names[names.index(key.type) :] if key else names:
            if len(found) < most:
                after = key.text or "" if key and key.type == name else None
                found += self._read(name, Page(most - len(found), after, None, self.filter))
        return found

    def _before(self, key: AnswerKey, most: int) -> list[AnswerKey]:
        names, found = list(self.questions), list[AnswerKey]()
        for name in names[names.index(key.type) :: -1]:
            before = key.text if key.type == name else _LAST
            if before is not None and len(found) < most:
                found = [*self._read(name, Page(most - len(found), None, before, self.filter)), *found]
                if len(found) < most and self._has_every(name):
                    found = [AnswerKey(name, None), *found]
        return found

    def _has_every(self, name: str) -> bool:
        return any(each.text is None for each in self._read(name, Page(1)))

    def _read(self, name: str, page: Page) -> list[AnswerKey]:
        return [AnswerKey(name, text) for (text,) in self.session.page(self.questions[name], page)]

    def _counted(self, first: AnswerKey | None) -> tuple[int, int | None]:
        """Return the number of all answers, and that of the page's first one."""
        total = before = 0
        for name, question in self.questions.items():
            if first is not None and name == first.type:
                count, sooner = self.session.count(question, self.filter, first.text or "")
                before = total + sooner
            else:
                count, _ = self.session.count(question, self.filter, None)
            total += count
        return total, before + 1 if first else None


# ---- answers ------------------------------------------------------------------------------------------------------
# Answers the question of a page, with notes about unknown names in it, and the time that it took.


@dataclass(frozen=True)
class PageAnswer:
    """The answer on a page: an explanation, a page of answers, or changes."""

    asked: PageQuestion
    questions: Sequence[Question] = ()
    goal: ExplainedGoal | None = None
    listed: Listed | None = None
    changes: ReviewLines | None = None
    moments: tuple[Moment, ...] = ()  # that the question is about; empty for now
    notes: Sequence[Note] = ()
    unused: Unused = ALL_USED  # of the context
    milliseconds: float = 0.0
    whens: tuple[AsOf | None, ...] = ()  # for changes: each moment as links ask for it
    ways: WaysOnPage | None = None  # what would allow what is denied, if that was asked for


def answered(asked: PageQuestion, with_ways: bool = False) -> PageAnswer:
    begun = time.perf_counter()
    if asked.kind.name == CHANGED:
        return _changed(asked, begun)
    with _session(asked) as session:
        questions = asked.questions(session.program)
        goal = found = None
        ways: WaysOnPage | None = None
        if asked.kind.column:
            found = listed(session, questions, asked.kind.column, asked.fields)
        else:
            (goal,) = explain_calls(session, questions[0])
        taken = time.perf_counter() - begun
        if goal is not None and not goal.holds and with_ways and asked.moment is None:
            ways = ways_on_page(session, questions[0])
        notes = [*unknown_names(session, asked, questions), *unmentioned(session, asked)]
        moments = () if asked.moment is None else (asked.moment,)
        return PageAnswer(asked, questions, goal, found, None, moments, notes, session.unused, taken * 1000, ways=ways)


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
    wanted = ReviewFilter(actor.type, action, asked.resource.type if asked.resource else "", actor.id)
    changes = changes_of(asked.environment_id, (old, new), wanted, asked.fields.get("filter", ""), page_start)
    whens = tuple(asked_of_page(asked_of, (old, new), page_start))
    taken = time.perf_counter() - begun
    with snapshot(asked.environment_id, new.version, (), frozenset(), new) as session:
        notes = list(unmentioned(session, asked))
    return PageAnswer(asked, changes=changes, moments=(old, new), whens=whens, notes=notes, milliseconds=taken * 1000)


def _strange(asked: PageQuestion, moment: Moment) -> list[Note]:
    assert moment.version is not None, "a moment that is reviewed has a policy"
    return unknown_types(program_of_version(moment.version), asked)
