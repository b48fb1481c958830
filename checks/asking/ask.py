"""Questions -> answers: the use cases behind every endpoint and command that asks.

A question is one statement. It carries the check of the caller's key and of the policy version that it was
compiled for, so nothing is trusted that the database has not confirmed in the same snapshot as the facts: no
row is a refused key, another version means to compile for that one and ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db import connection

from checks.asking import run
from checks.asking.framing import NEW_SIGNATURE, Setting
from checks.asking.prepared import Asked, Page, Prepared, Question, brought_to, compiled_question, prepared
from checks.engine.answers import Row
from checks.engine.compile import Compiled
from checks.errors import PolicyMoved
from facts.accept import Unused
from facts.wire import Fact
from policy.active import Caller, confirm
from policy.errors import AuthzError, KeyRefused, NotFound
from policy.values import Value

_TRIES = 10
AT_ONCE = 50  # questions in one statement; more take several, in one snapshot


@dataclass(frozen=True, slots=True)
class Trusted:
    """Who asks from inside, and needs no key: a command, or the admin."""

    environment_id: int


Asker = Caller | Trusted
QuestionsOf = Callable[[Setting], Sequence[Question]]  # what to ask, where that depends on the policy


def allow(
    actor: Asked, action: Asked, resource: Asked, outs: tuple[str, ...] = (), context: Sequence[Fact] = ()
) -> Question:
    """May `actor` do `action` on `resource`? `outs` are those of the three that are asked for."""
    variables = {"actor": actor, "action": action, "resource": resource}
    return Question((("allow", ("actor", "action", "resource")),), variables, outs, context)


# ---- answers ---------------------------------------------------------------------------------------------------


class Answered(NamedTuple):
    """Answers, each with the index of its question: distinct rows, where None stands for every value."""

    setting: Setting
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
    """The answer to one question, its rows in order where they are a page."""
    return answered(asker, lambda setting: (question,), question.context, page)


def allowed_among(
    asker: Asker, actor: Asked, action: Asked, resources: Sequence[Value], context: Sequence[Fact] = ()
) -> tuple[list[Value], Unused]:
    """Those of the resources that the actor may act on, as they come; and what of the context counted for nothing."""
    ids: dict[str, dict[str, None]] = {}
    for resource in resources:
        ids.setdefault(resource.type, {})[resource.id] = None
    types = list(ids)
    questions = [allow(actor, action, Asked(name, tuple(ids[name])), ("resource",), context) for name in types]
    found = answered(asker, lambda setting: questions, context)
    allowed = {Value(types[index], text) for index, (text,) in found.rows if text is not None}
    return [resource for resource in resources if resource in allowed], found.unused


def plan(asker: Asker, question: Question, page: Page | None = None) -> tuple[Compiled, Unused]:
    """What the question is compiled to, and what of its context counts for nothing. The facts are not asked."""
    setting = Setting(asker.environment_id, confirmed(asker), isinstance(asker, Caller))
    useful = brought_to(setting, question.context)
    return compiled_question(setting, question._replace(context=useful.facts), page), useful.unused


def answered(
    asker: Asker,
    questions_of: QuestionsOf,
    context: Sequence[Fact] = (),
    page: Page | None = None,
    at_once: int = AT_ONCE,
) -> Answered:
    """The answers to questions about the same facts, `at_once` at most in a statement."""
    with run.question_time():
        return _answered(asker, questions_of, context, page, at_once)


def _answered(
    asker: Asker, questions_of: QuestionsOf, context: Sequence[Fact], page: Page | None, at_once: int
) -> Answered:
    version = _hint(asker)
    for _ in range(_TRIES):
        generation = _generations.get(asker.environment_id, 0)
        setting = Setting(asker.environment_id, version, isinstance(asker, Caller), generation)
        questions: Sequence[Question] = ()
        try:
            useful = brought_to(setting, context)
            questions = questions_of(setting)
            statements = prepared(setting, questions, useful.facts, page, at_once)
        except AuthzError as refusal:
            # A refusal by a policy that is not active any more refuses nothing.
            current = confirmed(asker)
            if current == version:
                raise _told(refusal, questions) from None
        else:
            current, rows = _run(asker, statements, version)
            if current == version:
                return Answered(setting, questions, rows, useful.unused)
            if current == NEW_SIGNATURE:
                _generations[asker.environment_id] = generation + 1
                continue
        version = _remember(asker, current)
    raise PolicyMoved


def _told(refusal: AuthzError, questions: Sequence[Question]) -> AuthzError:
    return questions[0].in_words_of_caller(refusal) if len(questions) == 1 else refusal


def _run(asker: Asker, statements: list[Prepared], version: int | None) -> tuple[int | None, list[tuple[int, Row]]]:
    """The version that is active, and the answers, which count only if it is the one that was asked."""
    if not statements:
        return confirmed(asker), []
    if len(statements) == 1:  # which sees one moment as it is
        return _run_one(asker, statements[0])
    found: list[tuple[int, Row]] = []
    with run.snapshot():
        for each in statements:
            current, answers = _run_one(asker, each)
            if current != version:
                return current, []
            found += answers
    return version, found


def _run_one(asker: Asker, asked: Prepared) -> tuple[int | None, list[tuple[int, Row]]]:
    slots = asked.slots | {"key": asker.key_hash} if isinstance(asker, Caller) else asked.slots
    assert asked.ready.statement is not None, "what nothing can make true is not run"
    rows = run.answer(asked.ready.statement, asked.ready.rounds, slots)
    if not rows:
        raise _nobody(asker)
    return asked.read(rows)


def _nobody(asker: Asker) -> AuthzError:
    return KeyRefused() if isinstance(asker, Caller) else NotFound("the environment no longer exists")


# ---- which policy is active, most likely ---------------------------------------------------------------------------


_versions: dict[int, int | None] = {}  # what was active when last seen: a hint, confirmed by every statement
_generations: dict[int, int] = {}  # of the statements that know an environment's signatures


def _hint(asker: Asker) -> int | None:
    if asker.environment_id in _versions:
        return _versions[asker.environment_id]
    return _remember(asker, confirmed(asker))


def _remember(asker: Asker, version: int | None) -> int | None:
    if len(_versions) > 10_000:
        _versions.clear()
    _versions[asker.environment_id] = version
    return version


def confirmed(asker: Asker) -> int | None:
    """The policy version that is active now; a refusal where the key is not good any more."""
    if isinstance(asker, Caller):
        return confirm(asker).policy_version_id
    with connection.cursor() as cursor:
        cursor.execute("SELECT policy_version_id FROM environment WHERE id = %s", (asker.environment_id,))
        row = cursor.fetchone()
    if row is None:
        raise _nobody(asker)
    return row[0]
