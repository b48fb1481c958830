"""Answer questions: the use cases behind every endpoint and command that checks or lists something.

A question is one SQL statement, which also verifies the caller's key and the policy version that it was compiled for.
So nothing is trusted that the database has not confirmed in the snapshot of the facts. If the statement returns no row,
the key is rejected. If the version differs, the question is compiled for the current version and run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from checks.asking import by_rows, run
from checks.asking.advice import warning_on
from checks.asking.question import Asked, Check, Page, Question, allow
from checks.asking.session import (
    UNKNOWN_REVISION,
    Asker,
    LiveSession,
    Ready,
    SnapshotState,
    StatementResult,
    confirmed,
    nobody,
    session_now,
    settled,
)
from checks.engine.answers import AnswerRow
from checks.engine.compile import Compiled
from checks.errors import StatementTooLarge
from facts.accept import Unused
from facts.wire import Fact
from policy.active import Caller, Seen
from policy.core.config import settings
from policy.errors import AuthzError
from policy.moments import Moment, check_known, seen_since
from policy.values import Value

StatementsOf = Callable[[LiveSession, Sequence[Question], Sequence[Fact]], list[Ready]]

# Up to 50 questions per statement; more take several statements in one snapshot.
TOGETHER: StatementsOf = partial(LiveSession.statements_for, at_once=50)
_IS_TIMELESS = attrgetter("is_timeless")  # of a `Ready`
_IS_DOUBTFUL = attrgetter("is_doubtful")


# ---- answers ---------------------------------------------------------------------------------------------------


class Answered(NamedTuple):
    """Distinct answer rows, each with the index of its question. None in a row stands for every value."""

    session: LiveSession
    questions: Sequence[Question]
    rows: list[tuple[int, AnswerRow]]
    unused: Unused  # of the context
    revision: int  # of the facts
    state: SnapshotState  # in the snapshot that the answer was read from
    valid_while: SnapshotState | None = None  # the answer may be cached while this state lasts; None: not cacheable
    since: Seen | None = None  # read before the facts that decided what to ask; None: nothing was
    is_doubtful: bool = False  # whether the questions may have words that the policy does not have

    @property
    def warning(self) -> str:
        """Return the questions' words that the policy does not have, as a header line; empty if there are none."""
        return warning_on(self.session.program, self.questions) if self.is_doubtful else ""

    @property
    def seen(self) -> Seen:
        """Return the position of the environment at the earliest read that the answer depends on."""
        return seen_since(self.session.moment, self.since or self.state.seen)

    @property
    def version_id(self) -> int | None:
        """Return the policy version that answered."""
        return self.session.version

    @property
    def is_timeless(self) -> bool:
        """Return whether the answer stays valid until something is changed."""
        return self.valid_while is not None

    @property
    def holds(self) -> bool:
        return bool(self.rows)

    @property
    def of_one(self) -> list[AnswerRow]:
        return [row for _, row in self.rows]

    @property
    def of_each(self) -> list[list[AnswerRow]]:
        found: list[list[AnswerRow]] = [[] for _ in self.questions]
        for index, row in self.rows:
            found[index].append(row)
        return found


def answer(asker: Asker, question: Question, page: Page | None = None, moment: Moment | None = None) -> Answered:
    """Answer one question, as of `moment` (None: now). With a page, the rows are sorted."""
    statements_for = LiveSession.statements_for if page is None else partial(LiveSession.statements_for, page=page)
    return answered(asker, (question,), question.context, moment, statements_for)


def allowed_among(
    asker: Asker,
    actor: Asked,
    action: Asked,
    resources: Sequence[Value],
    context: Sequence[Fact] = (),
    moment: Moment | None = None,
) -> tuple[list[Value], Answered]:
    """Return the resources that the actor may act on, in the given order, and the answer they were read from."""
    ids: dict[str, dict[str, None]] = {}
    for resource in resources:
        ids.setdefault(resource.type, {})[resource.id] = None
    types = list(ids)
    questions = [allow(actor, action, Asked(name, tuple(ids[name])), ("resource",), context) for name in types]
    found = answered(asker, questions, context, moment)
    allowed = {Value(types[index], text) for index, (text,) in found.rows if text is not None}
    return [resource for resource in resources if resource in allowed], found


def allowed_each(
    asker: Asker, checks: Sequence[Check], context: Sequence[Fact] = (), moment: Moment | None = None
) -> tuple[list[bool], Answered]:
    """Return for each check whether it is allowed, and the answer that says so."""
    found = answered_each(asker, [allow(*check, (), context) for check in checks], context, moment)
    allowed = {index for index, _ in found.rows}
    return [index in allowed for index in range(len(checks))], found


def plan(asker: Asker, question: Question, page: Page | None = None) -> tuple[Compiled, Unused]:
    """Compile a question without running it. Return the result and the context facts that the policy doesn't use."""
    session = session_now(asker)
    useful = session.brought(question.context)
    return session.plan(question._replace(context=useful.facts), page), useful.unused


def answered_each(
    asker: Asker, questions: Sequence[Question], context: Sequence[Fact] = (), moment: Moment | None = None
) -> Answered:
    """Answer many questions; those that differ only in their values become rows of one statement (see `by_rows`).

    With a moment, or if that statement would be too large, each question is a statement of its own.
    """
    with run.question_time():
        if len(questions) > 1 and moment is None:
            with suppress(StatementTooLarge):
                return answered(asker, questions, context, None, by_rows.statements_for)
        return answered(asker, questions, context, moment, LiveSession.statements_for)


def answered(
    asker: Asker,
    questions: Sequence[Question] | Callable[[LiveSession], Sequence[Question]],
    context: Sequence[Fact] = (),
    moment: Moment | None = None,
    statements_for: StatementsOf = TOGETHER,
) -> Answered:
    """Answer questions with the same context facts by the statements that `statements_for` returns.

    `questions` is a function of the session if the policy decides what to ask.
    """

    def attempt(session: LiveSession) -> tuple[Answered, int | None]:
        asked: Sequence[Question] = ()
        # Without a policy, a function reads facts to decide what to ask, and does so before the statement reads any.
        depends = callable(questions) and session.version is None
        since = confirmed(asker).seen if depends and settings.REPLICAS else None
        try:
            useful = session.brought(context)
            asked = questions(session) if callable(questions) else questions
            statements = statements_for(session, asked, useful.facts)
        except AuthzError as refusal:
            raise asked[0].in_words_of_caller(refusal) if len(asked) == 1 else refusal from None
        state, rows = _run(asker, session, statements)
        if moment is not None and state.version == UNKNOWN_REVISION:
            check_known(asker.environment_id, moment)
        lasts = moment is None and not depends and not run.is_embedded() and all(map(_IS_TIMELESS, statements))
        revision = state.offset if moment is None else moment.revision
        doubtful = not statements or any(map(_IS_DOUBTFUL, statements))
        valid = state if lasts else None
        found = Answered(session, asked, rows, useful.unused, revision, state, valid, since, doubtful)
        return found, state.version if moment is None or statements else session.version

    with run.question_time():
        return settled(asker, moment, attempt)


def _run(asker: Asker, session: LiveSession, statements: Sequence[Ready]) -> StatementResult:
    """Return the snapshot's state and the answers, which are valid only if its version is the session's."""
    if len(statements) == 1:  # needs no transaction for a snapshot
        return _run_one(asker, statements[0])
    if not statements:
        return confirmed(asker), []
    rows: list[tuple[int, AnswerRow]] = []
    with run.snapshot():
        for each in statements:
            state, found = _run_one(asker, each)
            if state.version != session.version:
                return state, found
            rows += found
    return state, rows


def _run_one(asker: Asker, ready: Ready) -> StatementResult:
    if isinstance(asker, Caller):
        ready.slots["key"] = asker.key_hash
    rows = run.answer(ready.statement, ready.rounds, ready.slots)
    if not rows:
        raise nobody(asker)
    return ready.read(rows)
