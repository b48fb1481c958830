"""Sessions for many small questions, over the facts of one snapshot or over given facts only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from checks.asking import limits, run
from checks.asking.ask import Asker, LiveSession, Session, confirmed, rules_of, rules_of_program, settled
from checks.asking.question import (
    MOST_STATEMENTS,
    AskedPolicy,
    Cache,
    Outline,
    Page,
    PreparedCache,
    PreparedStatement,
    Question,
    StatementKey,
    Statements,
    Values,
    by_ids,
    inline_rows,
    numbering_of,
    outline_of,
    policy_of,
    program_of,
    shared_cache,
)
from checks.engine.compile import AnswerRow, Compiled, Root
from checks.engine.rules.clauses import Scan, Slot, bounded
from checks.engine.rules.ruleset import RuleSet
from checks.engine.sql.render import Window
from checks.engine.sql.rounds import Rounds
from checks.engine.sql.text import Dialect, Statement
from checks.errors import QueryTooSlow, StatementTooLarge, TestsTooSlow, TooComplex, TooManyRows, TooMuchRecursion
from checks.explain.cases import Cases
from facts.accept import ALL_USED, Unused, brought
from facts.numbering import NUMBERLESS, Numbered, Numbering, numbers_as_of
from facts.wire import Fact, by_signature
from policy.active import NO_VERSION, NOTHING_SEEN, Seen, versions
from policy.core.clock import timeline
from policy.core.config import settings
from policy.errors import AuthzError, NotFound
from policy.models import PolicyVersion
from policy.moments import Moment, check_known, seen_since
from policy.rules.program import Atom, Program, Signature, Types
from policy.values import INTEGER, Value

# ---- A session over the facts of one moment, for many small questions ---------------------------------------------

TIME_LIMIT = 10.0  # seconds at most, after which a search stops
_MOST = 0.8  # of a question's time
_SHORTEST = 0.05  # minimum time limit of a statement, in seconds
_LONGER = 0.02  # seconds a server may run a statement past the time left: setting its limit takes time
GIVEN_UP = (TooComplex, TooMuchRecursion, QueryTooSlow, StatementTooLarge)  # they end a search, not the request
NO_VALUES: Mapping[str, object] = {}

# Statements of all snapshots by published policies. Live sessions have a cache of their own: they do not wait for what
# is compiled here, and their statements are not evicted for it.
published: Statements = shared_cache(MOST_STATEMENTS)


def new_statements() -> Statements:
    """Return a cache for the statements of an unpublished program."""
    return PreparedCache(MOST_STATEMENTS)


@contextmanager
def active_snapshot(
    asker: Asker, context: Sequence[Fact], mentioned: Types, moment: Moment | None = None
) -> Iterator[Snapshot]:
    """Open a snapshot of the present, by the policy active in it, or of a past moment, by that moment's policy."""
    if moment is not None:
        with snapshot(asker.environment_id, moment.version, context, mentioned, moment) as found:
            yield replace(found, seen=seen_since(moment, confirmed(asker).seen))
        return
    with ExitStack() as opened:

        def attempt(session: LiveSession) -> tuple[Snapshot, int | None]:
            opened.close()
            found = opened.enter_context(snapshot(asker.environment_id, session.version, context, mentioned))
            state = confirmed(asker)
            return replace(found, revision=state.offset, seen=state.seen), state.version

        yield settled(asker, None, attempt)


@contextmanager
def snapshot(
    environment_id: int, version: int | None, context: Sequence[Fact], mentioned: Types, moment: Moment | None = None
) -> Iterator[Snapshot]:
    """Open a snapshot of an environment's facts and the context, by a policy version (None: the open policy)."""
    policy = policy_of(version, mentioned)
    with _opened(environment_id, policy, cases_of(policy), published, context, moment) as found:
        yield found


@contextmanager
def trial(
    environment_id: int, program: Program, context: Sequence[Fact], moment: Moment | None = None
) -> Iterator[Snapshot]:
    """Open a snapshot of an environment's facts and the context, by an unpublished program."""
    with _opened(environment_id, None, cases_of_text(program), new_statements(), context, moment) as found:
        yield found


@contextmanager
def _opened(
    environment_id: int,
    policy: AskedPolicy | None,
    cases: Cases,
    statements: Statements,
    context: Sequence[Fact],
    moment: Moment | None,
) -> Iterator[Snapshot]:
    useful = brought(cases.program, context, "context_facts")
    with run.question_time(), run.snapshot():
        if moment is not None:
            moment = check_known(environment_id, moment)
        known = numbers_as_of(environment_id, moment.signatures if moment else None)
        facts, inline = useful.facts, frozenset(by_signature(useful.facts))
        now = run.current_time() if moment is None else moment.at // 1_000_000
        yield Snapshot(
            environment_id, policy, cases, facts, inline, useful.unused, known, statements,
            past=moment, revision=moment.revision if moment else 0, now=now,
        )  # fmt: skip


_cases: Cache[AskedPolicy, Cases] = Cache(64)


def cases_of(policy: AskedPolicy) -> Cases:
    return _cases.get(policy) or _cases.made_once(policy, lambda: _cases_of(policy))


def _cases_of(policy: AskedPolicy) -> Cases:
    if isinstance(policy, frozenset):
        return Cases(program_of(policy), rules_of(policy))
    number = PolicyVersion.objects.values_list("number", flat=True).filter(pk=policy).first()
    if number is None:
        raise NotFound(NO_VERSION)
    return Cases(program_of(policy), rules_of(policy), number)


timeline.forgets(_cases.clear)
versions.forgets(_cases.drop)


def cases_of_text(program: Program) -> Cases:
    return Cases(program, rules_of_program(program))


def _patience() -> float:
    """Return most of a question's time limit in seconds; the rest is for reporting what was found."""
    limit = settings.STATEMENT_TIMEOUT
    return min(TIME_LIMIT, limit * _MOST) if limit > 0 else TIME_LIMIT


@dataclass(eq=False)
class Snapshot(Session):
    """Answers questions about one moment, now or past; results are cached, so that none is queried twice.

    `context` holds the context facts that the program can use; `unused` describes the others.
    """

    environment_id: int | None  # None: no stored facts
    policy: AskedPolicy | None  # None: that of an unpublished text
    cases: Cases
    context: Sequence[Fact]
    inline: frozenset[Signature]  # of the context
    unused: Unused
    known: Numbered  # the environment's signatures at that moment
    statements: Statements
    past: Moment | None = None  # None: now
    revision: int = 0  # of the facts; 0: unknown
    seen: Seen = NOTHING_SEEN  # the environment's position, if an asker was confirmed
    now: int = field(kw_only=True)  # the current time for its questions, in seconds since 1970
    patience: float = field(default_factory=_patience)  # seconds, after which a search stops
    started: float = field(default_factory=time.monotonic)
    planning: float = 0.0  # seconds of CPU time spent compiling
    allowed: float = inf  # seconds of CPU time for the current search, see `within`
    ends: float = inf  # end of that time, on the scale of `spent`
    waited: float = 0.0  # seconds a database server took for this session's statements
    told: float = inf  # statement timeout last set on the server, in seconds
    ended: str = ""  # why searches have stopped, once they have
    answered: dict[tuple, list[tuple]] = field(default_factory=dict)
    dialect: Dialect = field(default_factory=run.dialect)

    @property
    def program(self) -> Program:
        return self.cases.program

    def of(self, program: Program) -> Snapshot:
        """Return a session for another program over the same facts, as of the same moment."""
        cases, statements = cases_of_text(program), new_statements()
        return replace(self, policy=None, cases=cases, statements=statements, answered={})

    def beside(self, context: Sequence[Fact]) -> Snapshot:
        """Return a session with another context over the same stored facts."""
        useful = brought(self.program, context, "context_facts")
        inline = frozenset(by_signature(useful.facts))
        return replace(self, context=useful.facts, inline=inline, unused=useful.unused, answered={})

    @property
    def numbers(self) -> Mapping[Signature, int]:
        return self.known.numbers

    @property
    def spent(self) -> float:
        """Return this thread's CPU time plus the time a database server spent for it, in seconds."""
        return time.thread_time() + self.waited

    @property
    def lateness(self) -> str:
        """Return why searches have stopped; empty while there is time."""
        if not self.ended:
            if self.spent > self.ends:
                self.ended = f"it takes longer than {self.allowed:.2f} seconds of CPU time"
            elif time.monotonic() > self.started + self.patience:
                self.ended = f"it takes longer than {self.patience:g} seconds"
        return self.ended

    @property
    def is_late(self) -> bool:
        return bool(self.lateness)

    def gap_of(self, reason: AuthzError) -> str:
        """Return why a search stopped that raised one of `GIVEN_UP`."""
        is_time = isinstance(reason, QueryTooSlow)
        return self.lateness or (f"it takes longer than {self.patience:g} seconds" if is_time else reason.message)

    def check_time(self) -> None:
        """Raise `QueryTooSlow` if the time for the current search is over."""
        if self.ends < inf and self.is_late:
            raise QueryTooSlow(self.patience)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit the searches inside to `seconds` of CPU time, and to the session's patience.

        After that, statements and planning raise one of `GIVEN_UP`, and `lateness` says why.
        """
        self.allowed, self.ends, self.ended = seconds, self.spent + seconds, ""
        left = max(self.started + self.patience - time.monotonic(), _SHORTEST)
        self.told = min(left, seconds)
        try:
            with bounded(seconds), run.limited(left, seconds):
                yield
        finally:
            self.allowed, self.ends, self.told = inf, inf, inf

    @property
    def moment(self) -> Value:
        """Return the current time as its questions see it."""
        return Value(INTEGER, str(self.now))

    # ---- facts -------------------------------------------------------------------------------------------

    @cached_property
    def brought(self) -> frozenset[Fact]:
        """Return the context facts, computed once: a context parsed from JSON creates them anew on each iteration."""
        return frozenset(self.context)

    def place_of(self, fact: Fact) -> str | None:
        """Return where the fact is found: "context", "stored", or None."""
        if fact in self.brought:
            return "context"
        is_known = fact.signature in self.numbers and self.program.accepts(fact.predicate, fact.signature.types)
        if not is_known and not run.bound_tables().stores(fact.signature):
            return None
        slots = {f"a{index}": arg.id for index, arg in enumerate(fact.args)}
        scan = Scan(fact.signature, tuple(map(Slot, slots)))
        return "stored" if self.rows(Root((), (), (scan,)), 0, slots | self.slots()) else None

    # ---- asking ------------------------------------------------------------------------------------------

    def slots(self) -> dict[str, object]:
        """Return the slots that every statement may read, without those for its own values."""
        then: dict[str, object] = {}
        if self.past is not None:
            then = {"revision": self.past.revision, "moment": self.past.at}
        return {"now": str(self.now), **then} | ({"facts": self._facts} if self.inline else {})

    @cached_property
    def _facts(self) -> str:
        return inline_rows(self.context, numbering_of(self.known, self.inline).of)

    def rows(self, root: Root, width: int, slots: dict[str, object], most: int = 0) -> list[AnswerRow]:
        """Return at most `most` rows (0: all) that make the root true. None or the empty id stands for any value."""
        prepared = self.prepared(self._key(root, width, most))
        found = self._run(prepared, slots)
        if prepared.statement is None:
            return []
        if not width:
            return [()] if found[0][0] else []
        if prepared.is_guarded:
            return [row[2:] for row in found if row[1]][: most or None]
        return found

    def holds(self, question: Question) -> bool:
        return bool(self.answers(question))

    def answers(self, question: Question) -> Sequence[AnswerRow]:
        """Return the rows of a question, sorted. None stands for every value."""
        return sorted(self.first_answers(question), key=by_ids)

    def page(self, question: Question, page: Page) -> list[AnswerRow]:
        """Return a page of the answers to a question with one column, sorted."""
        prepared, slots = self._prepared_for(question, 0, page.window, page.slots)
        if prepared.statement is None:
            return []
        # The statement has applied the page already, unless its rows are guarded.
        return page.of(prepared.answers(self._run(prepared, slots)))

    def count(self, question: Question, text: str = "", before: str | None = None) -> tuple[int, int]:
        """Return how many ids in the single answer column contain the text, and how many of those precede `before`."""
        given: dict[str, object] = {"contained": text, "before": before}
        prepared, slots = self._prepared_for(question, 0, Window(False, before is not None, bool(text), True), given)
        if prepared.statement is None:
            return 0, 0
        found = self._run(prepared, slots)
        if not prepared.is_guarded:
            return found[0]
        ids = [name for (name,) in prepared.answers(found) if name is not None and text in name]
        return len(ids), sum(before is not None and name < before for name in ids)

    def _prepared_for(
        self, question: Question, most: int = 0, window: Window | None = None, given: Mapping[str, object] = NO_VALUES
    ) -> tuple[PreparedStatement, dict[str, object]]:
        slots = {**self.slots(), **given}
        outline = outline_of(question, Values(self.program.names, slots))
        return self.prepared(self._key(outline, len(question.outs), most, window)), slots

    def can_hold(self, question: Question) -> bool:
        """Return whether some facts could make it true, judging by the policy and the stored signatures."""
        return self._prepared_for(question)[0].statement is not None

    def answers_within(self, question: Question, most: int, seconds: float | None) -> Sequence[AnswerRow]:
        """Return all answers like `first_answers`, within `seconds`; raise `TooManyRows` if there are `most` or more.

        Without `most` or `seconds`, that limit does not apply.
        """
        with run.limited(seconds):
            found = self.first_answers(question, most)
        if most and len(found) >= most:
            raise TooManyRows(most)
        return found

    def first_answers(self, question: Question, most: int = 0) -> Sequence[AnswerRow]:
        """Return at most `most` answers (0: all), unordered. With `most`, they may repeat, and are not cached."""
        prepared, slots = self._prepared_for(question, most)
        if prepared.statement is None:
            return []
        found = self._answer(prepared.statement, prepared.rounds, slots) if most else self._run(prepared, slots)
        return prepared.answers(found)

    def _run(self, prepared: PreparedStatement, slots: dict[str, object]) -> list[tuple]:
        """Run the statement, or return its cached rows for the same values. Statements with rounds are not cached."""
        if prepared.statement is None:
            return []
        if prepared.rounds:
            return self._answer(prepared.statement, prepared.rounds, slots)
        statement = prepared.statement
        key = (statement.sql, *statement.values(slots | statement.constants))
        if key not in self.answered:
            self.answered[key] = self._answer(prepared.statement, (), slots)
        return self.answered[key]

    def _answer(self, statement: Statement, rounds: Sequence[Rounds], slots: dict[str, object]) -> list[tuple]:
        return self._timed(lambda: run.answer(statement, rounds, slots))

    def _timed(self, act: Callable[[], list[tuple]]) -> list[tuple]:
        """Run statements if time is left. After a failed one, the snapshot stays usable only outside of `within`."""
        self.check_time()
        waiting = time.monotonic() - time.thread_time()
        try:
            try:
                with self._limited():
                    return act()
            finally:
                if self.dialect.has_clock:  # a server works while this thread waits
                    self.waited += time.monotonic() - time.thread_time() - waiting
        except AuthzError as reason:
            self.ended = self.gap_of(reason)
            raise

    def _limited(self) -> AbstractContextManager[None]:
        """Limit a server's statement to the time left. SQLite's statements are limited by their thread's CPU clock."""
        left = self.ends - self.spent
        if left == inf or not self.dialect.has_clock:
            return nullcontext()
        if left + _LONGER < self.told:
            self.told = max(left, _LONGER)
            run.limit(self.told)
        return limits.shortened(left)

    # ---- statements ----------------------------------------------------------------------------------------

    def _key(self, asked: Outline | Root, width: int, most: int, window: Window | None = None) -> StatementKey:
        as_of_signature = self.past.signatures if self.past else None
        return StatementKey(
            self.environment_id, self.policy, None, self.known.marks, self.dialect,
            (asked,), width, self.inline, as_of_signature, window, most, bound=run.bound_tables(),
        )  # fmt: skip

    def rules_of(self, key: StatementKey) -> RuleSet:
        return self.cases.rules

    def numbers_of(self, key: StatementKey) -> Numbered:
        return self.known

    def _made(self, key: StatementKey, places: tuple[int, ...]) -> tuple[Compiled, Numbering]:
        self.check_time()
        began = time.thread_time()
        made = super()._made(key, places)
        self.planning += time.thread_time() - began
        return made


# ---- A session over given facts only: no environment, no key, no stored facts -------------------------------------

FACTS_ALONE_TIME_LIMIT = 20.0  # seconds for all questions of one session


@dataclass(eq=False)
class FactsAlone(Snapshot):
    """Answers over given facts only; its statements depend on their signatures, not on the facts."""

    @classmethod
    def of_signatures(cls, program: Program, inline: frozenset[Signature]) -> FactsAlone:
        cases, statements, now = cases_of_text(program), new_statements(), run.current_time()
        return cls(
            None, None, cases, (), inline, ALL_USED, NUMBERLESS, statements, patience=FACTS_ALONE_TIME_LIMIT, now=now
        )

    def over(self, atoms: Iterable[Atom]) -> FactsAlone:
        """Return a session over these ground facts."""
        return replace(self, context=[fact_of_atom(atom) for atom in atoms], answered={})

    def answers(self, question: Question) -> Sequence[AnswerRow]:
        if self.is_late:
            raise TestsTooSlow(FACTS_ALONE_TIME_LIMIT)
        return super().answers(question)

    def check(self, key: StatementKey) -> None:
        """Accept any predicate: tests of a policy may check anything."""


def fact_of_atom(atom: Atom) -> Fact:
    args = tuple([arg for arg in atom.args if isinstance(arg, Value)])
    assert len(args) == len(atom.args), "facts of tests are ground"
    return Fact(atom.predicate, args)
