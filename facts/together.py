"""Change facts with the rights of a key. Writers that wait in a process for one environment share a transaction.

This is known as group commit. A change that is made alone is as a group of one: `make` in `facts/store.py` makes both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby
from threading import Event, Lock
from typing import NamedTuple

from django.db import InterfaceError, OperationalError, connection, transaction

from facts import store, table
from facts.models import NewRow
from facts.numbering import known_numbers, numbers_that_may_end
from facts.store import (
    Applied,
    Change,
    Deletes,
    Inserts,
    RevisionChanges,
    accepted_changes,
    make,
    parted,
    rows_to_end,
    rows_to_insert,
)
from facts.wire import some_end
from policy.active import Caller, Scope, confirm, key_check, program_of_version
from policy.core import journal, spaces, spans
from policy.core.clock import is_to_come, new_moment, timeline
from policy.core.config import settings
from policy.core.journal import By, Kind, WriterTurn, advance, changing, claim
from policy.errors import AuthzError, Busy, KeyRefused, NotFound, Unavailable
from policy.rules.program import Program

SMALL = 100  # maximum number of facts and patterns of a change that may share a transaction
MOST = 100  # writers of one commit
log = logging.getLogger("authz.facts")
MOMENT = 0.001  # seconds to wait for as many writers as shared the last commit


def apply_later(caller: Caller, changes: Sequence[Change], request_id: str, done: TakesOutcome) -> bool:
    """Call `done` with a function that returns what `apply_alone` would. Return False if that is not possible.

    If no one else is committing, this thread commits, and calls `done` first. Otherwise it returns at once, and another
    thread of its pool calls it. `done` must not fail.
    """
    run = journal.thread.run
    if run is None or not _may_share(changes):
        return False
    writer = _Writer(caller, changes, request_id, done, run)
    queue = _entered(writer)
    if writer.leads:
        _lead(queue, writer)
    return True


def _may_share(changes: Sequence[Change]) -> bool:
    inserts = [change.facts for change in changes if isinstance(change, Inserts)]
    patterns = [pattern for change in changes if isinstance(change, Deletes) for pattern in change.patterns]
    most_deletes = settings.MAX_DELETE_MATCHES or SMALL
    if sum(map(len, inserts)) + len(patterns) > SMALL or len(patterns) > most_deletes:
        return False
    return all(map(store.is_exact, patterns)) and not any(map(some_end, inserts))


def apply_alone(caller: Caller, changes: Sequence[Change], request_id: str) -> Applied:
    """Make all of the changes or none, with the rights of the caller's key now; return the offset of the commit."""
    with changing():
        who = confirm(caller)
        applied = store.apply(who.environment_id, changes, By(who.author, request_id))
        confirm(who)  # again: it may have been revoked while this waited for its turn
    return applied


# ---- waiting -----------------------------------------------------------------------------------------------------


TakesOutcome = Callable[[Callable[[], Applied]], None]


@dataclass(eq=False)
class _Writer:
    """Waiting changes, and their outcome: an offset, an error, or `is_alone` for a transaction of their own.

    No thread waits with it. `run` has one of its pool act for it.
    """

    caller: Caller
    changes: Sequence[Change]
    request_id: str
    done: TakesOutcome | None  # None once it was called, so that nothing keeps the request
    run: journal.Elsewhere
    parts: spans.Parts | None = field(default_factory=spans.parts)
    leads: bool = False
    is_over: bool = False  # it has its outcome
    since: float = field(default_factory=time.monotonic)
    author: str = ""  # once its key is confirmed
    offset: int = 0
    version_id: int | None = None
    error: Exception | None = None
    is_alone: bool = False

    @property
    def waited(self) -> float:
        return time.monotonic() - self.since

    @property
    def is_refused(self) -> bool:
        return self.is_alone or self.error is not None

    def lead(self, queue: _Queue) -> None:
        """Have another thread commit this writer's changes, and those of others."""
        self.leads = True
        self.run(lambda failed: spans.of_request(self.parts, partial(_lead, queue, self, failed)))

    def end(self) -> None:
        """Tell the outcome, once there is one."""
        if self.is_over:
            return
        self.is_alone = not (self.offset or self.error)
        self.is_over = True
        try:
            if self.is_alone or isinstance(self.error, KeyRefused):
                self.run(self._tell)  # this may take long: by a transaction, or where the environment is now
            else:
                self._tell()
        except Exception:  # the others of the group are to be told
            log.exception("cannot answer a change")

    def _tell(self, failed: Exception | None = None) -> None:
        if failed is not None and self.is_alone:
            self.error, self.is_alone = _copied(failed), False
        done, self.done = self.done, None
        if done is not None:
            spans.of_request(self.parts, partial(self._call, done))

    def _call(self, done: TakesOutcome) -> None:
        if spans.is_on and not self.leads:
            spans.note("wait", spans.now() - self.waited, of="turn")
        done(self._applied)

    def _applied(self) -> Applied:
        """Return the outcome or raise it, making the changes alone if they were refused in a group."""
        if self.is_alone:
            return apply_alone(self.caller, self.changes, self.request_id)
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # else error and traceback form a cycle until a garbage collection
        return Applied(self.offset, version_id=self.version_id)


class _Queue:
    """Writers of one environment, in order of arrival. The first one leads, the others wait."""

    def __init__(self, space: str, environment_id: int):
        self.space, self.environment_id = space, environment_id
        self._writers: list[_Writer] = []
        self._taken = 0  # so many of the first ones are in the commit under way
        self._wanted, self._are_enough = 0, Event()  # so many writers are enough for a commit

    def enter(self, writer: _Writer) -> None:
        self._writers.append(writer)
        writer.leads = len(self._writers) == 1
        if len(self._writers) == self._wanted:
            self._are_enough.set()

    def gather(self, count: int) -> None:
        """Wait a moment for this many writers."""
        with _entering:
            self._wanted = count
            if len(self._writers) >= count:
                return
            self._are_enough.clear()
        self._are_enough.wait(MOMENT)

    def take(self, most: int) -> list[_Writer]:
        """Return the writers that have waited longest, with the leader. The others may get `late`."""
        with _entering:
            self._taken = min(most, len(self._writers))
            return self._writers[: self._taken]

    def hand_on(self, leader: _Writer, group: Sequence[_Writer]) -> None:
        """Remove the leader's group, and let the next writer lead. Do nothing if the leader has already handed on."""
        with _entering:
            if self._writers[:1] != [leader]:
                return
            del self._writers[: len(group)]
            self._taken = 0
            if not self._writers:
                del _queues[self.space, self.environment_id]
                return
            self._writers[0].lead(self)

    def late(self) -> list[_Writer]:
        """Remove and return writers whose turn has not come within `WRITE_TIMEOUT`."""
        found = [each for each in self._writers[max(1, self._taken) :] if each.waited > settings.WRITE_TIMEOUT]
        self._writers = [each for each in self._writers if each not in found]
        return found


_queues: dict[tuple[str, int], _Queue] = {}  # by space and environment; none is empty
_entering = Lock()  # guards the queues


def _entered(writer: _Writer) -> _Queue:
    """Enter the queue of the environment that the writer's key belonged to when last seen, and return the queue."""
    place = spaces.here.name, writer.caller.environment_id
    with _entering:
        queue = _queues.get(place)
        if queue is None:
            queue = _queues[place] = _Queue(*place)
        queue.enter(writer)
    return queue


def end_late() -> None:
    """Refuse writers whose turn has not come within `WRITE_TIMEOUT`."""
    if settings.WRITE_TIMEOUT:
        with _entering:
            late = [writer for queue in _queues.values() for writer in queue.late()]
        for writer in late:
            writer.error = Busy(settings.WRITE_TIMEOUT)
            writer.end()


# ---- leading -----------------------------------------------------------------------------------------------------


class _NobodyAccepted(Exception):
    """All writers of the group are refused: the transaction is rolled back, including its turn."""


class _Latest(NamedTuple):
    """The last turn that this process had in an environment, and how many writers shared it."""

    turn: WriterTurn
    writers: int


_latest: dict[int, _Latest] = {}  # by environment
timeline.forgets(_latest.clear)


def _lead(queue: _Queue, leader: _Writer, failed: Exception | None = None) -> None:
    """Commit the changes of a group of writers, and tell each its outcome; with `failed`, that it is the leader's."""
    group: list[_Writer] = []
    known = _latest.get(queue.environment_id)
    try:
        if failed is not None:
            _fail([leader], failed)
            return
        if known and journal.can_pipeline() and not connection.in_atomic_block:
            queue.gather(known.writers)
            group = queue.take(MOST)
            if _store_in_one_trip(queue, leader, known.turn, group):
                return
            group = queue.take(0)
        waited = leader.waited
        with changing(waited):
            turn = advance(queue.environment_id, waited)
            group = queue.take(MOST)
            _latest[queue.environment_id] = _Latest(turn, len(group))
            inserted = _store_checked(queue.environment_id, turn, group)
            _note_written(queue, leader, group, inserted)
    except (_NobodyAccepted, NotFound):  # if the environment is gone, so are its keys: each writer retries alone
        pass
    except Exception as error:
        if not group or isinstance(error, (OperationalError, InterfaceError, Unavailable)):
            _fail(group or [leader], error)
    finally:
        _tell(queue, leader, group or [leader])


def _note_written(queue: _Queue, leader: _Writer, group: Sequence[_Writer], inserted: int) -> None:
    # Registered first, so that writers are notified of the commit before anything else, such as a check of statistics.
    transaction.on_commit(partial(_tell, queue, leader, group))
    table.note_stored(inserted)


# ---- by one statement ----------------------------------------------------------------------------------------------
# Most writers insert or delete a few facts of known signatures, without expiries. On PostgreSQL, one statement checks
# the keys of neighbors that all insert or all delete, claims their offsets, changes their facts, counts them, and
# records the revisions; if a key is refused, it does nothing, and these writers retry alone. It runs after the turn was
# taken, in a snapshot of its own, so it sees everything that preceding writers have committed.
#
# It is sent together with one that waits for the turn, and takes it if policy and expiries are as they were last seen.
# Before, a leader waits a moment for as many writers as shared the last commit: their clients may well write again.


class _Run(NamedTuple):
    """Neighbors that all insert, or all delete, and the rows of these facts, by revisions numbered from 1."""

    writers: Sequence[_Writer]
    inserts: bool
    rows: Sequence[NewRow]


def _store_in_one_trip(queue: _Queue, leader: _Writer, seen: WriterTurn, group: Sequence[_Writer]) -> bool:
    """Store the changes in one round trip to the database; return False if nothing was changed."""
    turn = replace(seen, moment=new_moment())
    runs = _runs(queue.environment_id, turn, group)
    if not runs:
        return False
    changes = [_statement(queue.environment_id, turn, run) for run in runs]
    taking = journal.next_turn_as(queue.environment_id, turn, leader.waited)
    found = journal.in_one_trip([*taking, *changes])
    done = _done(turn, runs, found[len(taking) :] if found else [])
    if done:
        _latest[queue.environment_id] = _Latest(turn, len(group))
        journal.note_recorded(queue.environment_id, done)
        _note_written(queue, leader, group, sum(each.inserted for each in done))
    return bool(done)


def _runs(environment_id: int, turn: WriterTurn, group: Sequence[_Writer]) -> list[_Run] | None:
    """Return the runs; None if a writer both inserts and deletes, stores or ends an expiry, or is not accepted."""
    if any(writer.caller.needs is not Scope.FACTS for writer in group):
        return None
    program, may_end = program_of_version(turn.policy_version_id), numbers_that_may_end(environment_id, turn.ends_mark)
    runs = []
    for kinds, run in groupby(group, lambda each: set(map(type, each.changes))):
        writers = list(run)
        if len(kinds) > 1:
            return None
        inserts, patterns = parted(
            (number, change) for number, each in enumerate(writers, 1) for change in each.changes
        )
        try:
            if inserts:
                accepted_changes(program, (change for _, change in inserts))
                rows = rows_to_insert(inserts, lambda _, signature: known_numbers[environment_id, signature])
            else:
                rows = [(*row, None) for row in rows_to_end(patterns, lambda each: known_numbers[environment_id, each])]
        except (AuthzError, KeyError):  # rejected by the policy, or of an unknown signature
            return None
        if not rows or (inserts and may_end and any(row[0] in may_end for row in rows)):
            return None
        runs.append(_Run(writers, bool(inserts), rows))
    return runs


def _statement(environment_id: int, turn: WriterTurn, run: _Run) -> tuple[str, Sequence[object]]:
    """Return the statement that makes the changes of a run. Its rows: number, inserted, deleted of each revision."""
    keys = {each.caller.key_hash for each in run.writers}
    count = len(run.writers)
    writers = [(number, each.caller.key_hash, each.request_id) for number, each in enumerate(run.writers, 1)]
    return _statement_of(run.inserts), (
        ",".join(keys), environment_id, count, environment_id, turn.moment, len(keys), count, table.as_json(run.rows),
        turn.policy_version_id, Kind.FACTS.value, table.as_json(writers),
    )  # fmt: skip


@cache
def _statement_of(inserts: bool) -> str:
    check = key_check()
    lasts = check.after(is_to_come(connection.vendor, check.expires_at))
    count = "(SELECT COUNT(*) FROM changed WHERE changed.number = turn.before + each.number)"
    before = "(SELECT at FROM authz_revision WHERE environment_id = turn.id AND number = turn.before)"
    return (
        f"WITH holder AS MATERIALIZED (SELECT {check.hash} AS hash, {check.author} AS author"
        f" FROM {check.before}ANY(string_to_array(%s, ',')){lasts} AND e.id = %s AND {check.scopes[Scope.FACTS]}),"
        ' turn AS (UPDATE authz_environment SET "offset" = "offset" + %s::bigint WHERE id = %s AND moment = %s'
        ' AND (SELECT COUNT(*) FROM holder) = %s RETURNING id, "offset" - %s AS before),'
        f" {table.inserts_in_with('turn') if inserts else table.ends_in_with('turn')}"
        f" INSERT INTO authz_revision ({journal.COLUMNS})"
        f" SELECT turn.id, turn.before + each.number, {journal.time_of_revision(connection.vendor, before)},"
        f" holder.author, each.request, %s::bigint, %s, {f'{count}, 0' if inserts else f'0, {count}'}"
        f" FROM turn, {table.rows_of_json('bigint', 'text', 'text')} AS each (number, hash, request)"
        f" JOIN holder USING (hash) RETURNING number, inserted, deleted"
    )


def _done(turn: WriterTurn, runs: Sequence[_Run], found: journal.Results) -> list[journal.Done]:
    """Return the revisions that the statements of the runs have recorded, and give their writers their offsets."""
    done: list[journal.Done] = []
    for run, rows in zip(runs, found):
        for writer, (number, *counts) in zip(run.writers, sorted(tuple(map(int, row)) for row in rows)):
            writer.offset, writer.version_id = number, turn.policy_version_id
            by = By(request_id=writer.request_id)
            done.append(journal.Done(number, Kind.FACTS, by, turn.policy_version_id, *counts))
    return done


# ---- step by step --------------------------------------------------------------------------------------------------


def _store_checked(environment_id: int, turn: WriterTurn, group: Sequence[_Writer]) -> int:
    """Check the keys, store the changes of writers that are not refused, and return how many facts were inserted.

    The turn has claimed the first offset. Writers get theirs at the commit, before anything else that it calls.
    """
    _refuse_keys(environment_id, group)
    program = program_of_version(turn.policy_version_id)
    accepted = [each for each in group if not each.is_refused and _is_accepted(program, each)]
    if not accepted:
        raise _NobodyAccepted
    claim(environment_id, len(accepted) - 1)
    transaction.on_commit(partial(_settle, accepted, turn))
    return make(environment_id, turn, _revisions(turn, accepted)).inserted


def _settle(accepted: Sequence[_Writer], turn: WriterTurn) -> None:
    for number, each in enumerate(accepted, turn.offset):
        each.offset, each.version_id = number, turn.policy_version_id


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
        writer.changes = accepted_changes(program, writer.changes)
    except AuthzError as error:
        writer.error = error
    return writer.error is None


def _revisions(turn: WriterTurn, group: Iterable[_Writer]) -> list[RevisionChanges]:
    """Return a revision for each writer, numbered from the turn's offset."""
    return [
        RevisionChanges(number, By(each.author, each.request_id), each.changes)
        for number, each in enumerate(group, turn.offset)
    ]


def _tell(queue: _Queue, leader: _Writer, group: Sequence[_Writer]) -> None:
    """Hand on the lead, and tell the writers of the group their outcomes."""
    queue.hand_on(leader, group)
    for each in group:
        each.end()


def _fail(group: Iterable[_Writer], error: Exception) -> None:
    """Give each writer a copy of the error: raised exceptions have tracebacks, so writers cannot share one.

    Changes that have an offset are committed, whatever has failed since.
    """
    for each in group:
        if each.error is None and not each.offset:
            each.error = _copied(error)


def _copied(error: Exception) -> Exception:
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied
