"""Sessions: who asks, by which policy, and the prepared statements that answer, with what they confirm.

    Question -> StatementKey -> prepared statement -> its rows -> answers

A `StatementKey` is a question without its values. Most requests differ from earlier ones only in their values, so their
key finds what was prepared. On a miss, the key is turned into the engine's `Shape`, which is compiled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import count
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeVar

from checks.asking import limits, run
from checks.asking.advice import may_be_unknown
from checks.asking.open_policy import AskedPolicy, open_program, policy_of, program_of
from checks.asking.question import Outline, Page, Question, Values, check_predicate, inline_rows, outline_of
from checks.engine.answers import AnswerRow, answers_of
from checks.engine.compile import EXISTS, Compiled, Root, Shape, compiled
from checks.engine.rules.clauses import NOW, Slot, uncounted
from checks.engine.rules.ruleset import RuleSet
from checks.engine.sql.bound import NO_TABLES, BoundTables
from checks.engine.sql.dialects import CLOCKS, Dialect
from checks.engine.sql.render import Window
from checks.engine.sql.rounds import Fetched, Rounds, statements_of
from checks.engine.sql.stored import REVISION
from checks.engine.sql.text import Statement, Text, finished, joined
from checks.errors import PolicyMoved, QueryTooSlow
from facts.accept import UsableContextFacts, brought
from facts.numbering import Marks, Numbered, Numbering, latest_signature, marks_of, numbers_as_of
from facts.wire import Fact, by_signature
from policy.active import MOMENT, Caller, Seen, caller_of_hash, key_check, program_of_version, versions
from policy.core import spans
from policy.core.clock import timeline
from policy.core.config import settings
from policy.core.memory import K, Recent, V
from policy.errors import AuthzError, KeyRefused, NotFound, Unavailable
from policy.moments import Moment
from policy.rules.program import Program, Signature, Types
from policy.scopes import Scope

T = TypeVar("T")

# ---- keys of statements, and caches of what is prepared -----------------------------------------------------------

_NO_SIGNATURES: frozenset[Signature] = frozenset()
_MOST_STATEMENTS = 8192


class StatementKey(NamedTuple):
    """Cache key of a statement, or of a plan for one: everything that it depends on except values."""

    environment_id: int | None  # facts to read; None: context facts only
    policy: AskedPolicy | None  # rules to use; None: those of an unpublished text
    needs_key: bool | None  # whether to confirm the caller's key; None: confirm nothing
    signatures: int | Marks | None  # whose numbers are compiled in: a snapshot's marks or a session's generation
    dialect: Dialect  # of the database with stored facts
    asked: tuple[Outline | Root, ...]
    width: int  # number of answer columns of each question
    inline: frozenset[Signature] = _NO_SIGNATURES  # signatures of the request's context facts
    as_of_signature: int | None = None  # with as_of: the latest signature at that revision; None: now
    window: Window | None = None
    most: int = 0  # maximum number of rows, in any order; 0: no limit
    by_rows: bool = False  # whether the statement takes many rows of values (see `by_rows`)
    tables: Hashable = None  # of the caller, if the caller is to run the statement (see `localsql`)
    bound: BoundTables = NO_TABLES  # of the application that the service is part of

    def places(self, program: Program) -> tuple[int, ...]:
        """Return the positions of the questions whose types the program knows; the others have no answers."""
        asked = enumerate(self.asked)
        return tuple([place for place, each in asked if isinstance(each, Root) or all(map(program.knows, each.types))])

    def shape(self, places: Iterable[int]) -> Shape:
        """Return the questions at these positions in the engine's form."""
        asked = [self.asked[place] for place in places]
        roots = tuple([each if isinstance(each, Root) else each.root for each in asked])
        has_stored = self.environment_id is not None
        is_past = self.as_of_signature is not None
        return Shape(roots, self.width, self.inline, has_stored, self.window, self.most, is_past, self.bound)


class Cache(Recent[K, V]):
    """A bounded cache. If several threads need the same missing key, one computes the value and the others wait."""

    def __init__(self, most: int, weigh: Callable[[V], int] | None = None):
        super().__init__(most, weigh)
        self._making = tuple(Lock() for _ in range(16))

    def made_once(self, key: K, make: Callable[[], V]) -> V:
        """Return the cached value, or compute and cache it. Waiting for another thread ends at the deadline."""
        with limits.locked(self._making[hash(key) % len(self._making)]):
            found = self.get(key)
            if found is None:
                found = make()
                self.store(key, found)
            return found


class ReadsTables(Protocol):
    """What a `PreparedCache` holds."""

    @property
    def reads(self) -> int: ...  # number of tables that its plans read


P = TypeVar("P", bound=ReadsTables)


class PreparedCache(Cache[StatementKey, P]):
    """Caches what is prepared, and reports for each request what was found or compiled."""

    def found(self, key: StatementKey) -> P | None:
        """Return what is cached."""
        found = self.get(key)
        if found is not None and spans.is_on:
            spans.add(("found", 0.0, 0.0, {"key": key}))
        return found

    def made(self, key: StatementKey, make: Callable[[StatementKey], P], keeps: bool = True) -> P:
        """Compile it, and cache it if it `keeps`. After a policy change, many threads miss a key; one compiles it."""
        limits.check()

        def compiled_now() -> P:
            with spans.noted("compile", key=key):
                return make(key)

        return self.made_once(key, compiled_now) if keeps else compiled_now()


_shared: list[PreparedCache[Any]] = []


def shared_cache(most: int) -> PreparedCache[Any]:
    """Return a cache for all sessions by published policies."""
    cache: PreparedCache[Any] = PreparedCache(most)
    drops_old_versions(cache)
    _shared.append(cache)
    return cache


def drops_old_versions(cache: Cache[StatementKey, Any]) -> None:
    """Drop what was made for a policy version once that is old, and everything after a failover."""
    versions.forgets(lambda version: cache.drop_all(lambda key: key.policy == version))
    timeline.forgets(cache.clear)


def tables_read(key: StatementKey) -> int | None:
    """Return how many tables a statement reads; None if it is no longer cached."""
    return next((found.reads for cache in _shared if (found := cache.get(key)) is not None), None)


# ---- confirmation -------------------------------------------------------------------------------------------------
# A statement confirms, in the snapshot in which it reads the facts: that the caller's key is valid and may read; that
# the policy version it was compiled for is active; and that the environment's signatures are those it knows. With the
# answer come the active version, the moment (a number: while it is the same, so are all answers) and the offset, which
# is the revision of the facts.
#
#     SELECT <version>, CASE WHEN <mine> THEN (<truth>) END, <moment>, <offset> FROM <gate>      -- yes or no
#     SELECT <version>, <moment> || ':' || <offset>, NULL FROM <gate>                            -- rows
#         UNION ALL SELECT -1, x.* FROM (<rows>) x WHERE EXISTS (<gate and mine>)
#     SELECT <version>, <moment>, <offset> FROM <gate>                                           -- confirm only
#
# <gate> is one row if the key is valid, else none. <mine> is true if the active version is the statement's own. As of a
# past revision, the policy is that revision's; <version> is the statement's own if the revision is still available, and
# otherwise `UNKNOWN_REVISION`.

IS_ANSWER, NEW_SIGNATURE, UNKNOWN_REVISION = -1, -2, -3  # in place of a policy version
MOVED = "authz: the policy changed while a query was prepared; run it again "
_OFFSET = 'e."offset"'
# For each result, SQLite's driver reads the column names and looks up a converter for the declared column type. So
# names are short, and a unary `+` turns a column into an expression, which has no declared type.
_NUMBERS = f"{MOMENT} AS m, +{_OFFSET} AS o"


class SnapshotState(NamedTuple):
    """What a statement's snapshot contained: the active policy version, the moment and the offset."""

    version: int | None
    moment: int
    offset: int = 0

    @property
    def seen(self) -> Seen:
        """Return the environment's position in this snapshot."""
        return Seen(self.offset, self.moment)


@lru_cache(maxsize=10_000)
def state_statement(environment_id: int, needs_key: bool, dialect: Dialect) -> Statement:
    """Return the statement that only confirms. With `needs_key`, it has the slot `key`, and no row for a bad key."""
    gate = _gate(environment_id, needs_key, dialect)
    return finished((f"SELECT +e.policy_version_id AS v, {_NUMBERS} FROM ", *gate), dialect.placeholder)


def state_and_rows(rows: list[tuple[Any, ...]]) -> tuple[SnapshotState, list[tuple[Any, ...]]]:
    """Split the rows that `Confirmation.of_rows` selects into the state and the answer rows."""
    version, numbers, *_ = next(row for row in rows if row[0] != IS_ANSWER)
    moment, offset = map(int, numbers.split(":"))
    return SnapshotState(version, moment, offset), [row[1:] for row in rows if row[0] == IS_ANSWER]


class Confirmation(NamedTuple):
    environment_id: int
    needs_key: bool
    watches_signatures: bool  # whether facts of new signatures could change the answer
    ends_mark: int
    dialect: Dialect
    is_past: bool = False

    def of_truth(self, truth: Text, columns: int = 1) -> Text:
        """Select one row if the key is valid: the state, and the truth, or NULL if the version is another one."""
        value: Text = ("(", *truth, ")")
        if self.is_past and truth[0] == EXISTS:  # less around it: it may nest as deep as without as_of
            value = ("EXISTS (", *truth[1:-1], ")")
        mine: Text = ("CASE WHEN ", *self._mine, " THEN ", *value, " END")
        return ("SELECT ", *self._version, " AS v, ", *mine, f" AS t, {_NUMBERS} FROM ", *self._gate)

    def of_rows(self, rows: Text, columns: int) -> Text:
        """Select a row with the state if the key is valid, then the answer rows if the version is this statement's.

        The moment is cast to text because the first answer column is text, and PostgreSQL requires one type per column.
        """
        numbers = f", CAST({MOMENT} AS text) || ':' || {_OFFSET}{', NULL' * (columns - 1)} FROM "
        first: Text = ("SELECT ", *self._version, numbers, *self._gate)
        here: Text = ("EXISTS (SELECT 1 FROM ", *self._gate, " AND ", *self._mine, ")")
        return (*first, f" UNION ALL SELECT {IS_ANSWER}, x.* FROM (", *rows, ") x WHERE ", *here)

    def checked(self, truth: Text) -> Text:
        """Return the truth as a condition of another statement, which fails if the policy is another one by then."""
        mine = self.dialect.same_number(self._version, (Slot("version"),))
        failure = self.dialect.failing(MOVED, "e.id")
        checked: Text = ("(SELECT CASE WHEN ", *mine, f" THEN 1 = 1 ELSE {failure} END FROM ", *self._gate, ")")
        return ("(", *checked, " AND ", *truth, ")")

    @property
    def _version(self) -> Text:
        """Return SQL for the policy version, or for `NEW_SIGNATURE` if the signatures have changed since then."""
        moved: list[Text] = [] if self.is_past else [(f"e.ends_mark <> {int(self.ends_mark)}",)]
        if self.watches_signatures:
            moved.append(("e.signature_mark <> ", *self.dialect.number((Slot("mark"),))))
        version: Text = ("e.policy_version_id",)
        if self.is_past:
            own = self.dialect.number((Slot("version"),))
            version = ("CASE WHEN ", *self._is_known, " THEN ", *own, f" ELSE {UNKNOWN_REVISION} END")
        if not moved:
            return version
        return ("CASE WHEN ", *joined(" OR ", moved), f" THEN {NEW_SIGNATURE} ELSE ", *version, " END")

    @property
    def _mine(self) -> Text:
        if self.is_past:
            return self._is_known
        return self.dialect.same_number(("e.policy_version_id",), (Slot("version"),))

    @property
    def _is_known(self) -> Text:
        return (*self.dialect.number((REVISION,)), f" BETWEEN e.horizon AND {_OFFSET}")

    @property
    def _gate(self) -> Text:
        return _gate(self.environment_id, self.needs_key, self.dialect)


def _gate(environment_id: int, needs_key: bool, dialect: Dialect) -> Text:
    # Check the environment too: the statement reads this one's facts, but the key may have been moved to another.
    here = f"e.id = {int(environment_id)}"
    if not needs_key:
        return (f"authz_environment e WHERE {here}",)
    check = key_check()
    after = check.after(dialect.is_to_come(check.expires_at))
    return (check.before, Slot("key"), f"{after} AND {check.scopes[Scope.READ]} AND {here}")


# ---- prepared statements ------------------------------------------------------------------------------------------

# The state, and the answers, each with its question's position.
StatementResult = tuple[SnapshotState, list[tuple[int, AnswerRow]]]


class Ready(NamedTuple):
    """A statement with its values, and the function that reads its rows."""

    statement: Statement
    rounds: tuple[Rounds, ...]
    slots: dict[str, object]
    read: Callable[[list[Fetched]], StatementResult]
    is_timeless: bool
    is_doubtful: bool = False  # whether its questions may have words that the policy does not have


class PreparedStatement(NamedTuple):
    """A statement and how to read its rows. `statement` is None if nothing can be true, whatever the facts."""

    statement: Statement | None
    rounds: tuple[Rounds, ...] = ()
    width: int = 0
    is_guarded: bool = False
    places: tuple[int, ...] = ()  # positions of the questions it answers, among those of its key
    numbers: Mapping[Signature, int] = {}  # of the signatures of the request's context facts
    marks: Marks = Marks()  # of the environment's signatures when it was compiled
    is_timeless: bool = True  # whether the answer is independent of the clock
    reads: int = 0  # number of tables that its plans read
    is_doubtful: bool = False  # whether its questions may have words that the policy does not have

    @classmethod
    def of(
        cls, made: Compiled, places: tuple[int, ...], numbers: Mapping[Signature, int], marks: Marks
    ) -> PreparedStatement:
        """Keep what is needed of a compiled query; its plans are dropped."""
        every = [*([made.statement] if made.statement else []), *statements_of(made.rounds)]
        is_timeless = not any(map(reads_clock, every))
        shape = made.shape
        reads = sum(root.plan.weight for root in made.roots)
        guarded = made.is_guarded
        return cls(made.statement, made.rounds, shape.width, guarded, places, numbers, marks, is_timeless, reads)

    def answers(self, rows: list[Fetched]) -> Sequence[AnswerRow]:
        """Return the answers to one question from the rows of a statement that confirms nothing."""
        if not self.width:
            return [()] if rows[0][0] else []
        return answers_of(rows) if self.is_guarded else rows

    def confirmed(self, start: int, page: Page | None, rows: list[Fetched]) -> StatementResult:
        """Read the rows of a confirming statement. `start` is the position of the first question of its key."""
        places = self.places
        first = start + places[0]
        if not self.width:
            version, truth, moment, offset = rows[0]
            return SnapshotState(version, moment, offset), [(first, ())] if truth else []
        state, found = state_and_rows(rows)
        if self.is_guarded:
            found = answers_of(found)
        if len(places) > 1:
            return state, [(start + places[int(row[0])], row[1:]) for row in found]
        return state, [(first, row) for row in (page.of(found) if page else found)]


UNANSWERED = PreparedStatement(None)


def reads_clock(statement: Statement) -> bool:
    """Return whether the statement reads the time, so that its result may change though no data does."""
    return NOW in statement.parameters or any(clock in statement.sql for clock in CLOCKS)


Statements = PreparedCache[PreparedStatement]


def numbering_of(known: Numbered, inline: frozenset[Signature]) -> Numbering:
    """Return the numbers for a statement. Those of the context come first, so that all statements agree on them."""
    numbering = Numbering(known)
    for signature in sorted(inline, key=str):
        numbering.of(signature)
    return numbering


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
        return self._prepared_now(key) if found is None else found

    def _prepared_now(self, key: StatementKey) -> PreparedStatement:
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
            return confirmation.of_rows(rows, columns) if key.width else confirmation.of_truth(rows, columns)

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

    statements = shared_cache(_MOST_STATEMENTS)

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
        names, found = self.program.names, []
        given = given or self.given()
        for start in range(0, len(questions), at_once):
            slots = dict(given)
            key = self.key(names, questions[start : start + at_once], context, page, slots)
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
        self,
        names: frozenset[str],
        questions: Sequence[Question],
        context: Sequence[Fact],
        page: Page | None,
        slots: dict[str, object],
    ) -> StatementKey:
        """Return the key of the questions, and store their values in `slots`."""
        values = Values(names, slots)
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
        inline = frozenset(by_signature(context)) if context else _NO_SIGNATURES
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
        key = self.key(self.program.names, (question,), question.context, page, {})
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
    return rule_sets.get(policy) or rule_sets.made_once(
        policy, lambda: RuleSet(program_of(policy), patience=settings.PLANNING_TIMEOUT)
    )


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


def likely_session(asker: Asker) -> LiveSession:
    """Return the session of the policy that was last seen active."""
    found = _sessions.get((asker.environment_id, isinstance(asker, Caller)))
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
