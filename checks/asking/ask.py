"""Questions -> answers: the use cases behind every endpoint and command that asks.

A question is one statement. It carries the check of the caller's key and of the policy version that it was
compiled for, so nothing is trusted that the database has not confirmed in the same snapshot as the facts: no
row is a refused key, another version means to compile for that one and ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from checks.asking import run
from checks.asking.askers import Asker, confirmed, likely_session, nobody, session_after, session_now
from checks.asking.question import Asked, Page, Question
from checks.asking.session import TRIES, LiveSession, PreparedStatement
from checks.engine.answers import Row
from checks.engine.compile import Compiled
from checks.errors import PolicyMoved
from facts.accept import Unused
from facts.wire import Fact
from policy.active import Caller
from policy.errors import AuthzError
from policy.values import Value

AT_ONCE = 50  # questions in one statement; more take several, in one snapshot


def allow(
    actor: Asked, action: Asked, resource: Asked, outs: tuple[str, ...] = (), context: Sequence[Fact] = ()
) -> Question:
    """Ask whether `actor` may do `action` on `resource`; `outs` are those of the three that are asked for."""
    variables = {"actor": actor, "action": action, "resource": resource}
    return Question((("allow", ("actor", "action", "resource")),), variables, outs, context)


# ---- answers ---------------------------------------------------------------------------------------------------


class Answered(NamedTuple):
    """Answers, each with the index of its question: distinct rows, where None stands for every value."""

    session: LiveSession
    questions: Sequence[Question]
    rows: list[tuple[int, Row]]
    unused: Unused  # of the context

    @property
    def holds(self) -> bool:
        return bool(self.rows)

    @property
    def of_one(self) -> list[Row]:
        return [row for _, row in self.rows]

    @property
    def of_each(self) -> list[list[Row]]:
        found: list[list[Row]] = [[] for _ in self.questions]
        for index, row in self.rows:
            found[index].append(row)
        return found


def answer(asker: Asker, question: Question, page: Page | None = None) -> Answered:
    """Answer one question, with its rows in order where they are a page."""
    return answered(asker, (question,), question.context, page)


def allowed_among(
    asker: Asker, actor: Asked, action: Asked, resources: Sequence[Value], context: Sequence[Fact] = ()
) -> tuple[list[Value], Unused]:
    """Return the resources that the actor may act on, as they come; and what of the context counted for nothing."""
    ids: dict[str, dict[str, None]] = {}
    for resource in resources:
        ids.setdefault(resource.type, {})[resource.id] = None
    types = list(ids)
    questions = [allow(actor, action, Asked(name, tuple(ids[name])), ("resource",), context) for name in types]
    found = answered(asker, questions, context)
    allowed = {Value(types[index], text) for index, (text,) in found.rows if text is not None}
    return [resource for resource in resources if resource in allowed], found.unused


def plan(asker: Asker, question: Question, page: Page | None = None) -> tuple[Compiled, Unused]:
    """Return what the question is compiled to, and what of its context counts for nothing. Nothing is asked."""
    session = session_now(asker)
    useful = session.brought(question.context)
    return session.plan(question._replace(context=useful.facts), page), useful.unused


def answered(
    asker: Asker,
    questions: Sequence[Question] | Callable[[LiveSession], Sequence[Question]],
    context: Sequence[Fact] = (),
    page: Page | None = None,
    at_once: int = AT_ONCE,
) -> Answered:
    """Answer questions about the same facts, `at_once` at most in a statement.

    Where it depends on the policy what to ask, `questions` is a function of the session.
    """
    with run.question_time():
        session = likely_session(asker)
        for _ in range(TRIES):
            asked: Sequence[Question] = ()
            try:
                useful = session.brought(context)
                asked = questions(session) if callable(questions) else questions
                statements = session.statements_for(asked, useful.facts, page, at_once)
            except AuthzError as refusal:
                # A refusal by a policy that is not active any more refuses nothing.
                current = confirmed(asker)
                if current == session.version:
                    raise asked[0].in_words_of_caller(refusal) if len(asked) == 1 else refusal from None
            else:
                current, rows = _run(asker, session, statements, page)
                if current == session.version:
                    return Answered(session, asked, rows, useful.unused)
            session = session_after(session, current)
    raise PolicyMoved


WithValues = list[tuple[PreparedStatement, dict[str, object], int]]


def _run(
    asker: Asker, session: LiveSession, statements: WithValues, page: Page | None
) -> tuple[int | None, list[tuple[int, Row]]]:
    """Return the version that is active, and the answers, which count only if it is the session's."""
    if not statements:
        return confirmed(asker), []
    if len(statements) == 1:  # which sees one moment as it is
        return _run_one(asker, *statements[0], page)
    found: list[tuple[int, Row]] = []
    with run.snapshot():
        for each in statements:
            current, answers = _run_one(asker, *each, page)
            if current != session.version:
                return current, []
            found += answers
    return session.version, found


def _run_one(
    asker: Asker, prepared: PreparedStatement, slots: dict[str, object], start: int, page: Page | None
) -> tuple[int | None, list[tuple[int, Row]]]:
    if isinstance(asker, Caller):
        slots["key"] = asker.key_hash
    assert prepared.statement is not None, "what nothing can make true is not run"
    rows = run.answer(prepared.statement, prepared.rounds, slots)
    if not rows:
        raise nobody(asker)
    return prepared.confirmed(rows, start, page)
