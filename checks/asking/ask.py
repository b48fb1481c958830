"""Answer questions: the use cases behind every endpoint and command that checks or lists something.

A question is one SQL statement, which also verifies the caller's key and the policy version that it was compiled for.
So nothing is trusted that the database has not confirmed in the snapshot of the facts. If the statement returns no row,
the key is rejected. If the version differs, the question is compiled for the current version and run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from operator import attrgetter
from threading import Lock
from typing import NamedTuple, TypeVar

from checks.asking import run
from checks.asking.advice import may_be_unknown, warning_on, warning_on_pattern
from checks.asking.limits import DeadlineLock, planning_timeout
from checks.asking.question import (
    MOST_STATEMENTS,
    NEW_SIGNATURE,
    NO_SIGNATURES,
    UNANSWERED,
    UNKNOWN_REVISION,
    Asked,
    AskedPolicy,
    Cache,
    Confirmation,
    Outline,
    Page,
    PreparedStatement,
    Question,
    Ready,
    SnapshotState,
    StatementKey,
    StatementResult,
    Statements,
    Values,
    allow,
    check_predicate,
    inline_rows,
    numbering_of,
    open_program,
    outline_of,
    policy_of,
    program_of,
    shared_cache,
    state_statement,
)
from checks.engine.compile import AnswerRow, Compiled, compiled
from checks.engine.rules.clauses import uncounted
from checks.engine.rules.ruleset import RuleSet
from checks.engine.sql.render import Window
from checks.engine.sql.text import Text
from checks.errors import PolicyMoved, QueryTooSlow
from facts.accept import Unused, UsableContextFacts, brought
from facts.numbering import Marks, Numbered, Numbering, latest_signature, marks_of, numbers_as_of
from facts.wire import Fact, FactPattern, by_signature
from policy.active import Caller, Scope, Seen, caller_of_hash, program_of_version, versions
from policy.core.clock import timeline
from policy.core.config import settings
from policy.errors import AuthzError, KeyRefused, NotFound, Unavailable
from policy.moments import Moment, check_known, seen_since
from policy.rules.program import Program, Types
from policy.values import Value

T = TypeVar("T")

# ---- sessions -----------------------------------------------------------------------------------------------------
# Sessions: each answers questions by one policy, with statements that are compiled once.
#
# A `LiveSession` answers requests: its statements confirm what they assume, such as the policy version. A `Snapshot`
# runs many small questions in one snapshot, where there is nothing to confirm.

_NO_TYPES: Types = frozenset()
_NO_CONTEXT = UsableContextFacts(())


class Session(ABC):
    """A policy over some facts: compiles questions, or finds them in the cache."""

    statements: Statements
    watches = False  # whether every statement confirms the signatures that it was compiled for

    @property
    @abstractmethod
    def program(self) -> Program: ...

    def prepared(self, key: StatementKey) -> PreparedStatement:
        """Return the statement for the key's questions, from the cache if possible."""
        found = self.statements.found(key)
        if found is not None:
            return found
        self.check(key)
        if not key.places(self.program_of(key)):  # not cached: callers could make up any number of undeclared types
            return UNANSWERED
        return self.statements.made(key, self._compiled, self.keeps())

    def program_of(self, key: StatementKey) -> Program:
        """Return the program for the types that the key mentions."""
        return self.program

    def keeps(self) -> bool:
        """Return whether compiled statements may be cached now."""
        return True

    @abstractmethod
    def rules_of(self, key: StatementKey) -> RuleSet: ...

    @abstractmethod
    def numbers_of(self, key: StatementKey) -> Numbered:
        """Return the signatures that a statement may read."""

    def check(self, key: StatementKey) -> None:
        """Raise `UnknownPredicate` if a question uses a predicate that the policy does not have."""
        for each in key.asked:
            for predicate, _ in each.calls if isinstance(each, Outline) else ():
                check_predicate(self.program_of(key), predicate)

    def _compiled(self, key: StatementKey) -> PreparedStatement:
        places = key.places(self.program_of(key))
        made, numbering = self._made(key, places)
        numbers = {signature: numbering.of(signature) for signature in key.inline}
        program = self.program_of(key)
        doubtful = any(may_be_unknown(program, each) for each in key.asked if isinstance(each, Outline))
        return PreparedStatement.of(made, places, numbers, numbering.marks)._replace(is_doubtful=doubtful)

    def _made(self, key: StatementKey, places: tuple[int, ...]) -> tuple[Compiled, Numbering]:
        """Compile the questions at these positions."""
        numbering = numbering_of(self.numbers_of(key), key.inline)

        def around(rows: Text, columns: int) -> Text:
            if key.environment_id is None or key.needs_key is None:
                return rows
            watches, ends = bool(numbering.missing) or self.watches, numbering.marks.ends
            is_past = key.as_of_signature is not None
            confirmation = Confirmation(key.environment_id, key.needs_key, watches, ends, key.dialect, is_past)
            return confirmation.of_rows(rows, columns) if key.width else confirmation.of_truth(rows)

        return compiled(self.rules_of(key), key.shape(places), key.dialect, numbering, around), numbering


_generations = count(1)


def new_generation() -> int:
    return next(_generations)


@dataclass(eq=False)
class LiveSession(Session):
    """Answers by the policy version that was last seen active; every statement confirms it.

    With a moment, it answers as of a past revision, by that revision's policy version and signatures.

    Statements contain the signature numbers known when they were compiled. If a statement finds others, the next
    session gets a new generation, which is part of its keys, so that it finds none of the old statements.
    """

    statements = shared_cache(MOST_STATEMENTS)

    environment_id: int
    version: int | None
    needs_key: bool = True
    generation: int = field(default_factory=new_generation)
    moment: Moment | None = None  # None: now
    # Inside an application, whose transactions may be rolled back: the marks of the signatures, which take the place of
    # the generation. They are random, so that those of a transaction that is rolled back never return.
    marks: Marks | None = None

    def __post_init__(self) -> None:
        if self.marks is None and run.is_embedded():
            self.marks = marks_of(self.environment_id)

    @property
    def watches(self) -> bool:  # type: ignore[override]
        return self.marks is not None

    @property
    def program(self) -> Program:
        return open_program(_NO_TYPES) if self.version is None else program_of_version(self.version)

    @cached_property
    def names(self) -> frozenset[str]:
        """The policy's names, kept here because each question needs them."""
        return self.program.names

    def program_for(self, types: Types) -> Program:
        """Return the program for questions that mention these types."""
        return program_of(policy_of(self.version, types))

    def brought(self, context: Sequence[Fact], path: str = "context_facts") -> UsableContextFacts:
        """Return the context facts that the policy can use; the others change neither answers nor statements."""
        return brought(self.program, context, path) if context else _NO_CONTEXT

    def statements_for(
        self,
        questions: Sequence[Question],
        context: Sequence[Fact] = (),
        page: Page | None = None,
        at_once: int = 1,
        given: Mapping[str, object] | None = None,
    ) -> list[Ready]:
        """Return statements with their values, each for at most `at_once` questions.

        Questions that nothing can make true get none. `context` comes from `brought`. `given` holds the slots that all
        statements of the request share, if the caller has them already.
        """
        found = []
        given = given or self.given()
        for start in range(0, len(questions), at_once):
            slots = dict(given)
            key = self.key(questions[start : start + at_once], context, page, slots)
            prepared = self.prepared(key)
            if prepared.statement is not None:
                slots["mark"] = prepared.marks.signatures
                if context:
                    slots["facts"] = inline_rows(context, prepared.numbers.__getitem__)
                read = partial(prepared.confirmed, start, page)
                timeless, doubtful = prepared.is_timeless, prepared.is_doubtful
                found.append(Ready(prepared.statement, prepared.rounds, slots, read, timeless, doubtful))
        return found

    def given(self) -> dict[str, object]:
        """Return the slots shared by a request's statements: the policy version, and the time now or of the moment."""
        if self.moment is None:
            return {"now": run.given_time(), "version": self.version}
        revision, at = self.moment.revision, self.moment.at
        return {"now": str(at // 1_000_000), "version": self.version, "revision": revision, "moment": at}

    def key(
        self, questions: Sequence[Question], context: Sequence[Fact], page: Page | None, slots: dict[str, object]
    ) -> StatementKey:
        """Return the key of the questions, and store their values in `slots`."""
        values = Values(self.names, slots)
        asked = tuple([outline_of(question, values) for question in questions])
        window = None
        if page is not None:
            slots |= page.slots
            window = page.window
        return self.key_of(asked, context, window)

    def key_of(
        self, asked: tuple[Outline, ...], context: Sequence[Fact], window: Window | None = None, by_rows: bool = False
    ) -> StatementKey:
        """Return the key of a statement for outlines, which have the same number of answer columns."""
        inline = frozenset(by_signature(context)) if context else NO_SIGNATURES
        policy: AskedPolicy | None = self.version
        if policy is None:
            policy = _NO_TYPES.union(*(each.types for each in asked), *(signature.types for signature in inline))
        as_of_signature = None if self.moment is None else self.moment.signatures
        return StatementKey(
            self.environment_id, policy, self.needs_key, self.marks or self.generation, run.dialect(),
            asked, len(asked[0].outs), inline, as_of_signature, window, by_rows=by_rows, bound=run.bound_tables(),
        )  # fmt: skip

    def plan(self, question: Question, page: Page | None = None) -> Compiled:
        """Compile a question for display."""
        key = self.key((question,), question.context, page, {})
        self.check(key)
        return self._made(key, (0,))[0]

    def program_of(self, key: StatementKey) -> Program:
        return self.program_for(key.policy if isinstance(key.policy, frozenset) else _NO_TYPES)

    def rules_of(self, key: StatementKey) -> RuleSet:
        assert key.policy is not None, "there is always a policy"
        return rules_of(key.policy)

    def numbers_of(self, key: StatementKey) -> Numbered:
        found = numbers_as_of(self.environment_id, key.as_of_signature)
        if self.watches and found.marks != self.marks:
            raise Renumbered  # else a rollback could bring back these marks, with a statement for others
        return found

    def keeps(self) -> bool:
        if self.watches:
            return True
        return not run.in_transaction()  # a rollback would undo the signature numbers assigned in this transaction


rule_sets: Cache[AskedPolicy, RuleSet] = Cache(128)


def rules_of(policy: AskedPolicy) -> RuleSet:
    """Return the policy's rules in the engine's form; cached for all questions."""
    return rule_sets.get(policy) or rule_sets.made_once(policy, lambda: rules_of_program(program_of(policy)))


def rules_of_program(program: Program) -> RuleSet:
    return RuleSet(program, patience=planning_timeout(), lock=DeadlineLock())


timeline.forgets(rule_sets.clear)
versions.forgets(rule_sets.drop)

# ---- askers -------------------------------------------------------------------------------------------------------

_MOST_SESSIONS = 10_000
_TRIES = 10  # attempts while the policy or the signatures turn out to have changed


class Renumbered(Exception):
    """Signatures got numbers while parts of a statement were being compiled; all of them must be compiled again."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """An internal asker, which needs no key: a command, or the admin."""

    environment_id: int


Asker = Caller | Trusted


def confirmed(asker: Asker) -> SnapshotState:
    """Return the current state. Raise `KeyRefused` for a key that is invalid or belongs to another environment now."""
    statement = state_statement(asker.environment_id, isinstance(asker, Caller), run.dialect())
    with uncounted():  # may be called during planning
        row = run.glance(statement.sql, asker.key_hash) if isinstance(asker, Caller) else None
        rows = [row] if row is not None else run.execute(statement, given_by(asker))
        if not rows:
            raise nobody(asker)
    return SnapshotState(*rows[0])


def given_by(asker: Asker) -> dict[str, object]:
    """Return the asker's slots for statements."""
    return {"key": asker.key_hash} if isinstance(asker, Caller) else {}


def nobody(asker: Asker) -> AuthzError:
    """Return the error for an asker that the database does not know."""
    if isinstance(asker, Trusted):
        return NotFound("the environment no longer exists")
    try:
        caller_of_hash(asker.key_hash, Scope.READ)
    except KeyRefused as refusal:  # tells a bad key from a missing scope
        return refusal
    return KeyRefused()  # it belongs to another environment now


def session_now(asker: Asker) -> LiveSession:
    """Return a session by the policy that is active now."""
    return LiveSession(asker.environment_id, confirmed(asker).version, isinstance(asker, Caller))


def session_at(asker: Asker, moment: Moment) -> LiveSession:
    """Return a session by the policy of a moment."""
    generation = likely_session(asker).generation
    if moment.signatures is None:  # a moment from a page token lacks them
        moment = replace(moment, signatures=latest_signature(asker.environment_id, moment.revision))
    return LiveSession(asker.environment_id, moment.version, isinstance(asker, Caller), generation, moment)


def settled(asker: Asker, moment: Moment | None, attempt: Callable[[LiveSession], tuple[T, int | None]]) -> T:
    """Call `attempt` with sessions until one has the active policy, and return its result.

    `attempt` returns its result and the policy version that the database had meanwhile, or `NEW_SIGNATURE`. If that is
    not the session's, it is called again with the next session. The same goes for an error that it raises.
    """
    session = likely_session(asker) if moment is None else session_at(asker, moment)
    for _ in range(_TRIES):
        version: int | None
        try:
            result, version = attempt(session)
        except (KeyRefused, QueryTooSlow, Unavailable):
            raise  # independent of the policy
        except AuthzError:
            if moment is not None:
                raise
            version = confirmed(asker).version
            if version == session.version:
                raise
        except Renumbered:
            version = NEW_SIGNATURE
        else:
            if version == session.version:
                return result
        session = session_after(session, version)
    raise PolicyMoved


# ---- Sessions last seen active: hints, confirmed by every statement ----------------------------------------------

_sessions: dict[tuple[int, bool], LiveSession] = {}
_moving = Lock()
_floor = 0  # the oldest generation that a cached session may have


def _forget() -> None:
    """Start new generations, which find none of the statements compiled before."""
    global _floor
    with _moving:
        _sessions.clear()
        _floor = new_generation()


timeline.forgets(_forget)


def seen_session(asker: Asker) -> LiveSession | None:
    """Return the session of the policy that was last seen active, if any was seen yet."""
    return _sessions.get((asker.environment_id, isinstance(asker, Caller)))


def likely_session(asker: Asker) -> LiveSession:
    """Return the session of the policy that was last seen active, or of the one that is active now."""
    found = seen_session(asker)
    return _remember(session_now(asker)) if found is None else found


def session_after(session: LiveSession, current: int | None) -> LiveSession:
    """Return the next session to use after a statement found another version or new signatures."""
    with _moving:
        known = _sessions.get((session.environment_id, session.needs_key), session)
        if session.moment is not None:
            return replace(session, generation=_generation_after(known, session))
        if current != NEW_SIGNATURE:
            generation = max(known.generation, session.generation)
            if generation < _floor:  # the session predates a reset
                generation = new_generation()
            return _remember(LiveSession(session.environment_id, current, session.needs_key, generation))
        if (known.version, known.generation) != (session.version, session.generation):
            return known  # another thread already refreshed the session; all share what is compiled for it
        return _remember(LiveSession(session.environment_id, session.version, session.needs_key))


def _generation_after(known: LiveSession, session: LiveSession) -> int:
    """Return a generation that knows the current signatures."""
    if known.generation != session.generation:
        return known.generation
    return _remember(LiveSession(known.environment_id, known.version, known.needs_key)).generation


def _remember(session: LiveSession) -> LiveSession:
    if len(_sessions) > _MOST_SESSIONS:
        _sessions.clear()
    if session.version is not None:
        versions.note(session.environment_id, session.version)
    if session.generation >= _floor:
        _sessions[session.environment_id, session.needs_key] = session
    return session


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
    pattern: FactPattern | None = None  # of facts, if the policy decided by it what to ask

    @property
    def warning(self) -> str:
        """Return the questions' words that the policy does not have, as a header line; empty if there are none."""
        if self.pattern is not None:
            return warning_on_pattern(self.session.program, self.pattern)
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


def plan(asker: Asker, question: Question, page: Page | None = None) -> tuple[Compiled, Unused]:
    """Compile a question without running it. Return the result and the context facts that the policy doesn't use."""
    session = session_now(asker)
    useful = session.brought(question.context)
    return session.plan(question._replace(context=useful.facts), page), useful.unused


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
