"""Answers the question of a page, with notes about names in it that are not known, and the time that it took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from checks.asking.question import Question
from checks.asking.snapshot import Snapshot, UnpublishedProgram, snapshot, trial
from checks.explain.explain import ExplainedGoal, explain_calls
from checks.workbench.changed import asked_of_page, changes_of, moments_of_page
from checks.workbench.listing import Listed, PageAddress, listed
from checks.workbench.questions import CHANGED, PageQuestion
from checks.workbench.review import Wanted
from checks.workbench.review_cursor import page_start_from_text
from checks.workbench.stretches import Stretch
from checks.workbench.unknown import Note, unknown_names, unknown_types, unmentioned
from facts.accept import ALL_USED, Unused
from policy import rules
from policy.active import program_of_version
from policy.moments import AsOf, Moment
from policy.values import Value


@dataclass(frozen=True)
class PageAnswer:
    """What a page says of a question: an explanation, a page of answers, or what changed."""

    asked: PageQuestion
    questions: Sequence[Question] = ()
    goal: ExplainedGoal | None = None
    listed: Listed | None = None
    changes: Stretch | None = None
    moments: tuple[Moment, ...] = ()  # that the question is about; empty for now
    notes: Sequence[Note] = ()
    unused: Unused = ALL_USED  # of the context
    milliseconds: float = 0.0
    whens: tuple[AsOf | None, ...] = ()  # if the question is what changed: how links ask about each moment again


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
    """Return a session of the question's version, or of its text if it has one."""
    if asked.text:
        program = UnpublishedProgram.of(rules.compile_text(asked.text))
        return trial(asked.environment_id, program, asked.context, asked.moment)
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
    return PageAnswer(
        asked, changes=changes, moments=(old, new), whens=whens, notes=notes, milliseconds=taken * 1000
    )


def _strange(asked: PageQuestion, moment: Moment) -> list[Note]:
    assert moment.version is not None, "a moment that is reviewed has a policy"
    return unknown_types(program_of_version(moment.version), asked)
