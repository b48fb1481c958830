"""Group commit: writers of one environment that wait in the same process share one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from threading import Event, Lock

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction

from facts import store
from facts.accept import check_facts
from facts.models import ROW_LENGTH, NewRow, Row
from facts.numbering import known_number, numbers_that_may_end
from facts.store import Change, ChangeCounts, Deletes, Inserts, is_exact
from facts.table import INSERTING, columns_of, fact_table
from facts.wire import Fact, rows_of, some_end
from policy.active import Caller, confirm, key_check, program_of_version
from policy.errors import AuthzError, Busy, NotFound, Unavailable
from policy.ground import journal, spans
from policy.ground.clock import is_to_come
from policy.ground.journal import By, Done, Kind, WriterTurn, advance, changing, claim, record
from policy.ground.waking import run_with_connection
from policy.rules.program import Program
from policy.scopes import Scope

SMALL = 100  # maximum number of facts and patterns of a change that may share a transaction
MOST = 100  # writers of one commit


def apply(caller: Caller, changes: Sequence[Change], request_id: str = "") -> int:
    """Make all of the changes or none, with the rights of the caller's key now; return the offset of the commit."""
    if not _may_share(changes):
        return run_with_connection(partial(_apply_alone, caller, changes, request_id))
    writer = _Writer(caller, changes, request_id)
    queue = _entered(writer)
    if not writer.leads:
        with spans.noted("wait", of="turn"):
            queue.wait(writer)
    if writer.leads:
        try:
            run_with_connection(partial(_lead, queue, writer))
        finally:
            queue.hand_on(writer)  # in case no thread was found for `_lead`
    if writer.is_alone:
        return run_with_connection(partial(_apply_alone, caller, changes, request_id))
    if writer.error is not None:
        try:
            raise writer.error
        finally:
            writer.error = None  # else error and traceback form a cycle until a garbage collection
    return writer.offset


def _may_share(changes: Sequence[Change]) -> bool:
    inserts = [change.facts for change in changes if isinstance(change, Inserts)]
    patterns = [pattern for change in changes if isinstance(change, Deletes) for pattern in change.patterns]
    most_deletes = settings.MAX_DELETE_MATCHES or SMALL
    if sum(map(len, inserts)) + len(patterns) > SMALL or len(patterns) > most_deletes:
        return False
    return all(map(is_exact, patterns)) and not any(map(some_end, inserts))


def _apply_alone(caller: Caller, changes: Sequence[Change], request_id: str) -> int:
    with changing():
        who = confirm(caller)
        return store.apply(who.environment_id, changes, By(who.author, request_id)).offset


# ---- waiting -----------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Writer:
    """Waiting changes, and their outcome: an offset, an error, or `is_alone` for a transaction of their own."""

    caller: Caller
    changes: Sequence[Change]
    request_id: str
    leads: bool = False
    woken: Event = field(default_factory=Event)  # set once it leads, or has its outcome
    since: float = field(default_factory=time.monotonic)
    author: str = ""  # once its key is confirmed
    offset: int = 0
    error: Exception | None = None
    is_alone: bool = False

    @property
    def is_mixed(self) -> bool:
        """Return whether it both inserts and deletes, possibly the same facts."""
        return len(set(map(type, self.changes))) > 1

    @property
    def is_refused(self) -> bool:
        return self.is_alone or self.error is not None


class _Queue:
    """Writers of one environment, in order of arrival. While one leads, the others wait."""

    def __init__(self, environment_id: int):
        self.environment_id = environment_id
        self.leader: _Writer | None = None
        self._waiting: list[_Writer] = []

    def enter(self, writer: _Writer) -> None:
        self._waiting.append(writer)
        if self.leader is None:
            self._follow(writer)

    def wait(self, writer: _Writer) -> None:
        """Wait until the writer leads or has its outcome. Raise `Busy` if no leader takes it within `WRITE_TIMEOUT`."""
        if not writer.woken.wait(settings.WRITE_TIMEOUT or None):
            self._give_up(writer)
            writer.woken.wait()  # a leader is processing it, or has just made it the leader

    def take(self) -> list[_Writer]:
        """Remove and return the writers that have waited longest, including the leader."""
        with _entering:
            taken, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        return taken

    def hand_on(self, leader: _Writer) -> None:
        """Make the writer that has waited longest the next leader. Do nothing if the leader has already handed on."""
        with _entering:
            if self.leader is not leader:
                return
            self._waiting = [each for each in self._waiting if each is not leader]
            if self._waiting:
                self._follow(self._waiting[0])
            else:
                del _queues[self.environment_id]
                self.leader = None

    def _follow(self, leader: _Writer) -> None:
        self.leader, leader.leads = leader, True
        leader.woken.set()

    def _give_up(self, writer: _Writer) -> None:
        with _entering:
            if writer in self._waiting and not writer.leads:
                self._waiting.remove(writer)
                raise Busy(settings.WRITE_TIMEOUT)


_queues: dict[int, _Queue] = {}  # by environment; only those that have a leader
_entering = Lock()  # guards all of the above


def _entered(writer: _Writer) -> _Queue:
    """Enter the queue of the environment that the writer's key belonged to when last seen, and return the queue."""
    environment_id = writer.caller.environment_id
    with _entering:
        queue = _queues.get(environment_id)
        if queue is None:
            queue = _queues[environment_id] = _Queue(environment_id)
        queue.enter(writer)
    return queue


# ---- leading -----------------------------------------------------------------------------------------------------


class _NobodyAccepted(Exception):
    """All writers of the group are refused: the transaction is rolled back, including its turn."""


class _KeyRefused(Exception):
    """A key of the group is refused, and `_store_at_once` has stored nothing: retry, checking each key first."""


def _lead(queue: _Queue, leader: _Writer) -> None:
    """Commit the changes of a group of writers, and set each writer's outcome."""
    group: list[_Writer] = []
    waited = time.monotonic() - leader.since
    try:
        with suppress(_KeyRefused):
            with changing(waited):
                turn = advance(queue.environment_id, waited)
                group = queue.take()
                _write(queue, turn, leader, group, _store_at_once)
            return
        with changing(waited):
            _write(queue, advance(queue.environment_id, waited), leader, group, _store_checked)
    except (_NobodyAccepted, NotFound):  # if the environment is gone, so are its keys: each writer retries alone
        group = group or [leader]
    except (OperationalError, InterfaceError, Unavailable) as error:
        if not group:  # only the leader is affected, and its thread raises this
            raise
        _fail(group, error)
    except Exception:
        if not group:
            raise
    finally:
        queue.hand_on(leader)
        for each in group:
            each.is_alone = not (each.offset or each.error)
            each.woken.set()


StoringWay = Callable[[int, WriterTurn, Sequence[_Writer]], tuple[Sequence[_Writer], int]]


def _write(queue: _Queue, turn: WriterTurn, leader: _Writer, group: Sequence[_Writer], way: StoringWay) -> None:
    accepted, inserted = way(queue.environment_id, turn, group)
    # Registered first, so that writers are notified of the commit before anything else, such as a check of statistics.
    transaction.on_commit(partial(_tell, queue, leader, accepted, turn.offset))
    fact_table().note_stored(inserted)


# ---- by one statement ----------------------------------------------------------------------------------------------
# Most writers insert a few facts of known signatures, and end none. On PostgreSQL, one statement checks the keys of
# such a group, inserts its facts and its revisions, and counts them. It runs after the turn was taken, in a snapshot of
# its own, so it sees everything that preceding writers have committed.


def _store_at_once(environment_id: int, turn: WriterTurn, group: Sequence[_Writer]) -> tuple[Sequence[_Writer], int]:
    """Store the changes in one statement, if it supports them. Raise `_KeyRefused` if a key is refused."""
    numbered = list(enumerate(group, turn.offset))
    rows = _plain_rows(environment_id, turn, numbered) if connection.vendor == "postgresql" else None
    if not rows:
        return _store_checked(environment_id, turn, group)
    claim(environment_id, len(group) - 1)
    keys = [each.caller.key_hash for each in group]
    check = key_check()
    lasts = check.after(is_to_come(connection.vendor, check.expires_at))
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH holder AS MATERIALIZED (SELECT {check.hash} AS hash, {check.author} AS author"
            f" FROM {check.before}ANY(%s::text[]){lasts} AND e.id = %s AND {check.scopes[Scope.FACTS]}),"
            f" stored AS ({INSERTING} WHERE (SELECT COUNT(*) FROM holder) = %s"
            f" ON CONFLICT DO NOTHING RETURNING since)"
            f" INSERT INTO revision ({journal.COLUMNS})"
            f" SELECT %s, each.number, {journal.time_of_revision()}, holder.author, each.request, %s::bigint, %s,"
            f" (SELECT COUNT(*) FROM stored WHERE since = each.number), 0"
            f" FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS each (number, hash, request)"
            f" JOIN holder USING (hash) RETURNING number, inserted",
            (
                keys, environment_id, *columns_of(rows), len(set(keys)),
                environment_id, environment_id, turn.offset - 1, turn.policy_version_id, Kind.FACTS.value,
                [number for number, _ in numbered], keys, [each.request_id for each in group],
            ),
        )  # fmt: skip
        inserted = dict(cursor.fetchall())
    if len(inserted) < len(group):
        raise _KeyRefused
    done = [_done(number, each, turn, ChangeCounts(inserted[number])) for number, each in numbered]
    journal.note_recorded(environment_id, done)
    return group, sum(inserted.values())


def _plain_rows(environment_id: int, turn: WriterTurn, numbered: Sequence[tuple[int, _Writer]]) -> list[NewRow] | None:
    """Return the rows that the writers insert; None if one of them deletes or ends facts, or is not accepted."""
    changes = [(number, change) for number, writer in numbered for change in writer.changes]
    inserts = [(number, change) for number, change in changes if isinstance(change, Inserts)]
    if len(inserts) < len(changes) or any(writer.caller.needs is not Scope.FACTS for _, writer in numbered):
        return None
    program, number_of = program_of_version(turn.policy_version_id), partial(known_number, environment_id)
    try:
        for _, change in inserts:
            check_facts(program, change.facts, change.path)
        rows = _first_rows(inserts, lambda facts, number: rows_of(facts, number_of, number))
    except (AuthzError, KeyError):  # rejected by the policy, or of an unknown signature
        return None
    may_end = numbers_that_may_end(environment_id, turn.ends_mark)
    return None if may_end and any(row[0] in may_end for row in rows) else rows


# ---- step by step --------------------------------------------------------------------------------------------------


def _store_checked(environment_id: int, turn: WriterTurn, group: Sequence[_Writer]) -> tuple[Sequence[_Writer], int]:
    """Check the keys, and store the changes of writers that are not refused; return those, and the number of facts."""
    _refuse_keys(environment_id, group)
    program = program_of_version(turn.policy_version_id)
    accepted = [each for each in group if not each.is_refused and _is_accepted(program, each)]
    if not accepted:
        raise _NobodyAccepted
    claim(environment_id, len(accepted) - 1)
    return accepted, _store(environment_id, turn, accepted)


def _refuse_keys(environment_id: int, group: Sequence[_Writer]) -> None:
    """Check each key of the group now. A writer whose key now belongs to another environment commits alone."""
    for key_hash in {each.caller.key_hash for each in group}:
        holders = [each for each in group if each.caller.key_hash == key_hash]
        try:
            who = confirm(holders[0].caller)
        except AuthzError as error:
            _fail(holders, error)
        else:
            for each in holders:
                each.author = who.author
                each.is_alone = who.environment_id != environment_id


def _is_accepted(program: Program | None, writer: _Writer) -> bool:
    try:
        for change in writer.changes:
            if isinstance(change, Inserts):
                check_facts(program, change.facts, change.path)
    except AuthzError as error:
        writer.error = error
    return writer.error is None


def _store(environment_id: int, turn: WriterTurn, accepted: Sequence[_Writer]) -> int:
    """Store the changes in order, each writer's as one revision; return how many facts are new.

    Neighbors that only insert or only delete share statements. A writer that does both has statements of its own.
    """
    work = store.Work(environment_id, turn)
    numbered = list(enumerate(accepted, turn.offset))
    for is_mixed, run in groupby(numbered, lambda each: each[1].is_mixed):
        if is_mixed:
            for number, writer in run:
                _make(work, [(number, change) for change in writer.changes])
                work.settle(number)
        else:
            _make(work, [(number, change) for number, writer in run for change in writer.changes])
    counts = work.counts(numbered[0][0], numbered[-1][0])
    record(environment_id, [_done(number, each, turn, counts[number]) for number, each in numbered])
    return work.inserted


def _make(work: store.Work, changes: Iterable[tuple[int, Change]]) -> None:
    """Make the changes in order, merging neighbors of a kind: insert, insert, delete -> one insert, one delete."""
    for kind, run in groupby(changes, lambda change: type(change[1])):
        if kind is Inserts:
            _insert(work, run)
        else:
            deletes = [(number, each.patterns) for number, each in run if isinstance(each, Deletes)]
            work.delete_exactly((pattern, number) for number, patterns in deletes for pattern in patterns)


def _insert(work: store.Work, changes: Iterable[tuple[int, Change]]) -> None:
    work.insert(_first_rows(changes, partial(store.rows_of_facts, work.environment_id)))


def _first_rows(
    changes: Iterable[tuple[int, Change]], rows_of_facts: Callable[[Sequence[Fact], int], list[NewRow]]
) -> list[NewRow]:
    """Return the rows of all inserted facts; of equal facts, only the first one."""
    rows: dict[Row, NewRow] = {}
    for number, change in changes:
        if isinstance(change, Inserts):
            for row in rows_of_facts(change.facts, number):
                rows.setdefault(row[:ROW_LENGTH], row)
    return list(rows.values())


def _done(number: int, writer: _Writer, turn: WriterTurn, counts: ChangeCounts) -> Done:
    by = By(writer.author, writer.request_id)
    return Done(number, Kind.FACTS, by, turn.policy_version_id, counts.inserted, counts.deleted)


def _tell(queue: _Queue, leader: _Writer, accepted: Iterable[_Writer], first: int) -> None:
    """Hand on the lead, and wake the accepted writers. Their offsets are consecutive from `first`."""
    queue.hand_on(leader)
    for offset, each in enumerate(accepted, first):
        each.offset = offset
        each.woken.set()


def _fail(group: Iterable[_Writer], error: Exception) -> None:
    """Give each writer a copy of the error: raised exceptions have tracebacks, so writers cannot share one."""
    for each in group:
        if each.error is None:
            each.error = _copied(error)


def _copied(error: Exception) -> Exception:
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied
