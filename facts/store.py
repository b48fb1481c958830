"""Change the stored facts. Each call is one transaction: all of its changes, in the given order, or none.

Writers of one environment that wait in the same process share a transaction (group commit). A change that is made alone
is a group of one: `_make` makes the changes of both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AnySet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from threading import Event, Lock
from typing import NamedTuple

from django.db import InterfaceError, OperationalError, connection, transaction

from facts import numbering, table
from facts.accept import check_ends, check_facts, parted_by_end
from facts.models import COLUMNS, PAST, ROW_LENGTH, STORED, GoneRow, NewRow, Row
from facts.numbering import known_number, numbers_that_may_end, signature_number, signature_numbers
from facts.read import id_conditions, matching
from facts.table import ChangeCounts, fact_table, fetch
from facts.wire import Fact, FactPattern, batch_from_json, exact_pattern, patterns_from_json, rows_of, some_end
from policy.active import Caller, Scope, active_program, confirm, key_check, program_of_version
from policy.core import journal, spans
from policy.core.clock import is_to_come
from policy.core.config import settings
from policy.core.journal import (
    NOBODY,
    By,
    Done,
    Kind,
    WriterTurn,
    advance,
    changing,
    claim,
    record,
    run_with_connection,
)
from policy.errors import AuthzError, Busy, MalformedRequest, NotFound, TooLarge, Unavailable
from policy.rules.program import Program, Signature

# ---- changes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inserts:
    facts: Sequence[Fact]
    path: str | None = ""  # of the array in the request, for error messages; None if the body is the fact itself
    ends_stay: bool = False  # reject facts that are already stored with another expiry
    is_late: bool = False  # delayed: a fact that has expired since is deleted, not rejected


@dataclass(frozen=True, slots=True)
class Deletes:
    patterns: Sequence[FactPattern]


Change = Inserts | Deletes


def changes_from_json(raw: object, path: str) -> list[Change]:
    """Return the elements of a batch, in order."""
    if not isinstance(raw, list):
        raise MalformedRequest(path, "the request body must be an array of changesets")
    return [_change_from_json(item, f"{path}[{index}]") for index, item in enumerate(raw)]


def _change_from_json(raw: object, path: str) -> Change:
    match raw:
        case {"inserts": _, "deletes": _}:
            raise MalformedRequest(path, 'must have "inserts" or "deletes", not both')
        case {"inserts": facts}:
            return Inserts(batch_from_json(facts, f"{path}.inserts"), f"{path}.inserts")
        case {"deletes": patterns}:
            deletes = Deletes(patterns_from_json(patterns, f"{path}.deletes"))
            patterns.clear()  # the parsed JSON takes more memory than they do, and is not needed any more
            return deletes
    raise MalformedRequest(path, 'must be an object with "inserts" or "deletes"')


def is_exact(pattern: FactPattern) -> bool:
    """Return whether the pattern has all ids, and so matches at most one fact."""
    return all(arg.id is not None for arg in pattern.args)


def _accepted(program: Program | None, changes: Iterable[Change]) -> list[Change]:
    """Return the changes to make, in order. Reject facts that the policy cannot use, and expiries in the past."""
    accepted: list[Change] = []
    for change in changes:
        if isinstance(change, Inserts):
            check_facts(program, change.facts, change.path, is_strict=True)
            if change.is_late and some_end(change.facts):
                facts, ended = parted_by_end(change.facts)
                accepted += [Deletes([exact_pattern(fact) for fact in ended])] if ended else []
                change = replace(change, facts=facts)
            else:
                check_ends(change.facts, change.path)
        accepted.append(change)
    return accepted


# ---- expiries -----------------------------------------------------------------------------------------------------
# A signature is marked with its first fact that has an expiry; statements on unmarked signatures can ignore expiries. A
# fact has at most one expiry. If it is stored again with a different one, or with none, the old row becomes a past
# fact.


class EndsStay(AuthzError):
    """Facts were to be stored again with other expiries, by someone who may add facts but not end any."""

    def __init__(self, rows: AnySet[Row]):
        self.rows = rows
        super().__init__("this fact is already stored with another expiry, and you do not have permission to change it")


class Ends:
    """The expiries that one transaction stores and changes."""

    def __init__(self, environment_id: int, turn: WriterTurn):
        self.environment_id = environment_id
        self.may_end = numbers_that_may_end(environment_id, turn.ends_mark)
        self.revision = turn.offset
        self.changed = 0  # facts that were stored with another expiry

    def make_way(self, rows: Sequence[NewRow], some_end: bool, ends_stay: bool = False) -> None:
        """End the stored facts that are about to be stored with another expiry. Each fact is in at most one row.

        With `ends_stay`, refuse to: giving a fact an expiry in the near future amounts to deleting it.
        """
        if some_end:
            self._mark({row[0] for row in rows if row[-1] is not None})
        said = [row for row in rows if row[0] in self.may_end] if self.may_end else []
        if said:
            changed = fact_table().end_others(said)
            self.changed += changed
            if changed and ends_stay:
                self._check_stayed(said)

    def _check_stayed(self, rows: Sequence[NewRow]) -> None:
        """Raise `EndsStay` if `make_way` ended one of these facts, unless the fact had already expired."""
        numbers = sorted({row[0] for row in rows})
        tests = (table.of_signatures(numbers), "until = %s", "since < until", table.lasting())
        gone = table.select(table.KEY, *tests, table=PAST)
        lost = {tuple(row) for row in fetch(gone, (self.revision,))} & {row[:ROW_LENGTH] for row in rows}
        if lost:
            raise EndsStay(lost)

    def _mark(self, numbers: set[int]) -> None:
        new = numbers - self.may_end
        if new:
            numbering.let_end(self.environment_id, new)
            self.may_end |= new


# ---- Making changes: the work of one transaction --------------------------------------------------------------------


class RevisionChanges(NamedTuple):
    """The changes that one revision makes, and their author."""

    number: int
    by: By
    changes: Sequence[Change]

    @property
    def kinds(self) -> set[type[Change]]:
        return set(map(type, self.changes))

    @property
    def is_mixed(self) -> bool:
        """Return whether it both inserts and deletes, possibly the same facts."""
        return len(self.kinds) > 1

    def done(self, turn: WriterTurn, counts: ChangeCounts, kind: Kind = Kind.FACTS) -> Done:
        return Done(self.number, kind, self.by, turn.policy_version_id, counts.inserted, counts.deleted)


def _make(environment_id: int, turn: WriterTurn, revisions: Sequence[RevisionChanges], most_deleted: int = 0) -> Work:
    """Make the changes in order, and record the revisions, whose numbers are consecutive.

    Neighbors that only insert or only delete share statements. A revision that does both has statements of its own.
    """
    work = Work(environment_id, turn, most_deleted)
    for is_mixed, run in groupby(revisions, lambda each: each.is_mixed):
        for some in [[each] for each in run] if is_mixed else [list(run)]:
            work.make([(each.number, change) for each in some for change in each.changes])
            if is_mixed:
                work.settle(some[0].number)
    counts = work.counts(revisions[0].number, revisions[-1].number)
    record(environment_id, [each.done(turn, counts[each.number]) for each in revisions])
    return work


class Work:
    """Changes of facts in one transaction, in order, with the number of facts affected."""

    def __init__(self, environment_id: int, turn: WriterTurn, most_deleted: int = 0):
        self.environment_id = environment_id
        self.ends = Ends(environment_id, turn)
        self.most_deleted = most_deleted  # 0: any number
        self.inserted = 0
        self.deleted = 0
        self.touched: set[int] = set()  # numbers of signatures

    @property
    def is_mixed(self) -> bool:
        """Return whether the same fact may have been both inserted and deleted."""
        return bool(self.inserted and (self.deleted or self.ends.changed))

    def make(self, changes: Iterable[tuple[int, Change]]) -> None:
        """Make the changes, each with its revision: insert, insert, delete -> one insert, one delete."""
        for _, run in groupby(changes, lambda each: type(each[1])):
            inserts, patterns = _parted(run)
            self._insert(inserts)
            self._delete(patterns)

    def _insert(self, inserts: Sequence[tuple[int, Inserts]]) -> None:
        rows = rows_to_insert(inserts, self._number)
        if rows:
            self.touched.update(row[0] for row in rows)
            has_end = any(some_end(each.facts) for _, each in inserts)
            self.ends.make_way(rows, has_end, any(each.ends_stay for _, each in inserts))
            self.inserted += fact_table().insert(rows)

    def _number(self, revision: int, signature: Signature) -> int:
        return signature_number(self.environment_id, signature, revision)

    def _delete(self, patterns: Iterable[tuple[int, FactPattern]]) -> None:
        """End the facts that the patterns match. Neighbors without open arguments share a statement."""
        for exact, run in groupby(patterns, lambda each: is_exact(each[1])):
            if exact:
                some = list(run)
                try:
                    rows = rows_to_end(some, partial(known_number, self.environment_id))
                except KeyError:
                    rows = rows_to_end(some, signature_numbers(self.environment_id).get)
                if rows:
                    self._ended({row[0] for row in rows}, fact_table().end(rows))
            else:
                self._delete_matches(run)

    def _delete_matches(self, patterns: Iterable[tuple[int, FactPattern]]) -> None:
        fact_table().lift_time_limit()
        numbers = signature_numbers(self.environment_id)
        for until, pattern in patterns:
            conditions, ids = id_conditions(pattern.args)
            for number in matching(numbers, pattern.predicate, pattern.args).values():
                self._ended({number}, fact_table().end_all(f"sig = %s{conditions}", (number, *ids), until))

    def _ended(self, numbers: set[int], count: int) -> None:
        if count:
            self.touched |= numbers
            self.deleted += count
        if self.most_deleted and self.deleted > self.most_deleted:
            raise TooLarge(
                f"the deletes match more than {self.most_deleted:,} facts (MAX_DELETE_MATCHES); use narrower patterns, "
                "or raise the limit"
            )

    def settle(self, revision: int) -> None:
        """After all changes of a revision, cancel out what it both began and ended."""
        if self.is_mixed:
            table.settle(self.touched, revision)

    def counts(self, first: int, last: int) -> dict[int, ChangeCounts]:
        """Return the net changes of each of these revisions."""
        if first == last and not self.is_mixed:
            return {first: ChangeCounts(self.inserted, self.deleted)}
        return table.changed(self.touched, first, last)


def rows_to_insert(inserts: Sequence[tuple[int, Inserts]], number_of: Callable[[int, Signature], int]) -> list[NewRow]:
    """Return the rows of all inserted facts. Of equal facts, the first revision counts, and the last expiry."""
    some = [rows_of(each.facts, partial(number_of, revision), revision) for revision, each in inserts]
    if len(some) == 1:
        return some[0]
    rows: dict[NewRow, NewRow] = {}
    for row in chain.from_iterable(some):
        first = rows.setdefault(row[:ROW_LENGTH], row)
        if first[-1] != row[-1]:
            rows[row[:ROW_LENGTH]] = (*first[:-1], row[-1])
    return list(rows.values())


def _parted(
    changes: Iterable[tuple[int, Change]],
) -> tuple[list[tuple[int, Inserts]], list[tuple[int, FactPattern]]]:
    """Return the inserts, and the patterns of the deletes, each with its revision."""
    inserts: list[tuple[int, Inserts]] = []
    patterns: list[tuple[int, FactPattern]] = []
    for revision, change in changes:
        if isinstance(change, Inserts):
            inserts.append((revision, change))
        else:
            patterns += [(revision, pattern) for pattern in change.patterns]
    return inserts, patterns


def rows_to_end(
    patterns: Iterable[tuple[int, FactPattern]], number_of: Callable[[Signature], int | None]
) -> list[GoneRow]:
    """Return the rows of patterns without open arguments, each ended at a revision; of equal ones, the first counts."""
    rows: dict[Row, int] = {}
    for until, pattern in patterns:
        number = number_of(Signature(pattern.predicate, tuple([arg.type or "" for arg in pattern.args])))
        if number is not None:
            ids = [arg.id or "" for arg in pattern.args]
            rows.setdefault((number, *(ids + [""] * (len(COLUMNS) - len(ids)))), until)
    return [(*row, until) for row, until in rows.items()]


# ---- One transaction for one change ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Applied:
    offset: int
    deleted: int = 0
    version_id: int | None = None  # the policy version that accepted the facts


def apply(environment_id: int, changes: Iterable[Change], by: By = NOBODY) -> Applied:
    """Make the changes, all or none; return their offset and how many facts were deleted.

    An iterator of changes begins once no one else can change facts of the environment.
    """
    with changing():
        turn = advance(environment_id)
        changes = list(changes)  # now: some depend on the facts that are stored as of this turn
        limit = settings.MAX_DELETE_MATCHES if any(isinstance(change, Deletes) for change in changes) else 0
        accepted = _accepted(program_of_version(turn.policy_version_id), changes)
        work = _make(environment_id, turn, [RevisionChanges(turn.offset, by, accepted)], limit)
        table.note_stored(work.inserted)
    return Applied(turn.offset, work.deleted, turn.policy_version_id)


def check(environment_id: int, changes: Iterable[Change]) -> None:
    """Raise what `apply` would raise about these changes, by the active policy."""
    _accepted(active_program(environment_id), changes)


def clear(environment_id: int, by: By = NOBODY) -> Applied:
    """Delete every fact of the environment; keep its policy and its signatures' numbers."""
    with changing():
        turn = advance(environment_id)
        fact_table().lift_time_limit()
        numbers = signature_numbers(environment_id).values()
        deleted = sum(fact_table().end_all("sig = %s", (number,), turn.offset) for number in numbers)
        _record(environment_id, turn, Kind.CLEAR, by, ChangeCounts(deleted=deleted))
    return Applied(turn.offset, deleted)


def remove(environment_id: int) -> None:
    """Delete all facts of an environment that is about to be deleted, including past facts."""
    with changing():
        advance(environment_id)
        fact_table().lift_time_limit()
        for number in signature_numbers(environment_id).values():
            for name in (STORED, PAST):
                table.execute(table.delete("sig = %s", table=name), (number,))


def copy_facts(origin_id: int, target_id: int) -> None:
    """Copy the facts of one environment to another, with their expiries."""
    with changing():
        turn = advance(target_id)
        numbers = {
            signature_number(target_id, each, turn.offset): number
            for each, number in signature_numbers(origin_id).items()
        }
        may_end = numbering.ending_numbers(origin_id)
        if may_end:
            numbering.let_end(target_id, [target for target, origin in numbers.items() if origin in may_end])
        copied = sum(table.copy_signature(origin, target, turn.offset) for target, origin in numbers.items())
        _record(target_id, turn, Kind.COPY, NOBODY, ChangeCounts(copied))
        table.note_stored(copied)


def _record(environment_id: int, turn: WriterTurn, kind: Kind, by: By, counts: ChangeCounts) -> None:
    record(environment_id, [RevisionChanges(turn.offset, by, ()).done(turn, counts, kind)])


# ---- Group commit: one transaction for the writers of an environment that wait in this process ----------------------

SMALL = 100  # maximum number of facts and patterns of a change that may share a transaction
MOST = 100  # writers of one commit


def apply_as(caller: Caller, changes: Sequence[Change], request_id: str = "") -> Applied:
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
    return Applied(writer.offset, version_id=writer.version_id)


def _may_share(changes: Sequence[Change]) -> bool:
    inserts = [change.facts for change in changes if isinstance(change, Inserts)]
    patterns = [pattern for change in changes if isinstance(change, Deletes) for pattern in change.patterns]
    most_deletes = settings.MAX_DELETE_MATCHES or SMALL
    if sum(map(len, inserts)) + len(patterns) > SMALL or len(patterns) > most_deletes:
        return False
    return all(map(is_exact, patterns)) and not any(map(some_end, inserts))


def _apply_alone(caller: Caller, changes: Sequence[Change], request_id: str) -> Applied:
    with changing():
        who = confirm(caller)
        return apply(who.environment_id, changes, By(who.author, request_id))


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
    version_id: int | None = None
    error: Exception | None = None
    is_alone: bool = False

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
_entering = Lock()  # guards the queues


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
    transaction.on_commit(partial(_tell, queue, leader, accepted, turn))
    table.note_stored(inserted)


# ---- by one statement ----------------------------------------------------------------------------------------------
# Most writers insert or delete a few facts of known signatures, without expiries. On PostgreSQL, one statement checks
# the keys of neighbors that all insert or all delete, changes their facts, counts them, and records the revisions. It
# runs after the turn was taken, in a snapshot of its own, so it sees everything that preceding writers have committed.


class _Run(NamedTuple):
    """Neighbors that all insert, or all delete, and the rows of these facts."""

    revisions: Sequence[RevisionChanges]
    inserts: bool
    rows: Sequence[NewRow]


def _store_at_once(environment_id: int, turn: WriterTurn, group: Sequence[_Writer]) -> tuple[Sequence[_Writer], int]:
    """Store the changes by one statement for each run, if it can. Raise `_KeyRefused` if a key is refused."""
    runs = _runs(environment_id, turn, group) if connection.vendor == "postgresql" else None
    if not runs:
        return _store_checked(environment_id, turn, group)
    claim(environment_id, len(group) - 1)
    keys = iter([each.caller.key_hash for each in group])
    counts: dict[int, ChangeCounts] = {}
    for run in runs:
        counts |= _execute(environment_id, turn, run, [key for _, key in zip(run.revisions, keys)])
    done = [each.done(turn, counts[each.number]) for run in runs for each in run.revisions]
    journal.note_recorded(environment_id, done)
    return group, sum(each.inserted for each in done)


def _runs(environment_id: int, turn: WriterTurn, group: Sequence[_Writer]) -> list[_Run] | None:
    """Return the runs; None if a writer both inserts and deletes, stores or ends an expiry, or is not accepted."""
    if any(writer.caller.needs is not Scope.FACTS for writer in group):
        return None
    program, may_end = program_of_version(turn.policy_version_id), numbers_that_may_end(environment_id, turn.ends_mark)
    runs = []
    for kinds, run in groupby(_revisions(turn, group), lambda each: each.kinds):
        revisions = list(run)
        if len(kinds) > 1:
            return None
        inserts, patterns = _parted((each.number, change) for each in revisions for change in each.changes)
        try:
            if inserts:
                _accepted(program, (change for _, change in inserts))
                rows = rows_to_insert(inserts, lambda _, signature: known_number(environment_id, signature))
            else:
                rows = [(*row, None) for row in rows_to_end(patterns, partial(known_number, environment_id))]
        except (AuthzError, KeyError):  # rejected by the policy, or of an unknown signature
            return None
        if not rows or (inserts and may_end and any(row[0] in may_end for row in rows)):
            return None
        runs.append(_Run(revisions, bool(inserts), rows))
    return runs


def _execute(environment_id: int, turn: WriterTurn, run: _Run, keys: list[str]) -> dict[int, ChangeCounts]:
    """Make the changes of a run if all its keys are valid; return the number of facts that each revision changed."""
    check = key_check()
    lasts = check.after(is_to_come(connection.vendor, check.expires_at))
    changing_all = (table.inserts_in_with if run.inserts else table.ends_in_with)("(SELECT COUNT(*) FROM holder) = %s")
    count = "(SELECT COUNT(*) FROM changed WHERE changed.number = each.number)"
    numbers = [each.number for each in run.revisions]
    rows = fetch(
        f"WITH holder AS MATERIALIZED (SELECT {check.hash} AS hash, {check.author} AS author"
        f" FROM {check.before}ANY(%s::text[]){lasts} AND e.id = %s AND {check.scopes[Scope.FACTS]}),"
        f" {changing_all}"
        f" INSERT INTO authz_revision ({journal.COLUMNS})"
        f" SELECT %s, each.number, {journal.time_of_revision()}, holder.author, each.request, %s::bigint, %s,"
        f" {f'{count}, 0' if run.inserts else f'0, {count}'}"
        f" FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS each (number, hash, request)"
        f" JOIN holder USING (hash) RETURNING number, inserted, deleted",
        (
            keys, environment_id, *table.columns_of(run.rows), len(set(keys)),
            environment_id, environment_id, numbers[0] - 1, turn.policy_version_id, Kind.FACTS.value,
            numbers, keys, [each.by.request_id for each in run.revisions],
        ),
    )  # fmt: skip
    if len(rows) < len(run.revisions):
        raise _KeyRefused
    return {number: ChangeCounts(inserted, deleted) for number, inserted, deleted in rows}


# ---- step by step --------------------------------------------------------------------------------------------------


def _store_checked(environment_id: int, turn: WriterTurn, group: Sequence[_Writer]) -> tuple[Sequence[_Writer], int]:
    """Check the keys, and store the changes of writers that are not refused; return those, and the number of facts."""
    _refuse_keys(environment_id, group)
    program = program_of_version(turn.policy_version_id)
    accepted = [each for each in group if not each.is_refused and _is_accepted(program, each)]
    if not accepted:
        raise _NobodyAccepted
    claim(environment_id, len(accepted) - 1)
    return accepted, _make(environment_id, turn, _revisions(turn, accepted)).inserted


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
        writer.changes = _accepted(program, writer.changes)
    except AuthzError as error:
        writer.error = error
    return writer.error is None


def _revisions(turn: WriterTurn, group: Iterable[_Writer]) -> list[RevisionChanges]:
    """Return a revision for each writer, numbered from the turn's offset."""
    return [
        RevisionChanges(number, By(each.author, each.request_id), each.changes)
        for number, each in enumerate(group, turn.offset)
    ]


def _tell(queue: _Queue, leader: _Writer, accepted: Iterable[_Writer], turn: WriterTurn) -> None:
    """Hand on the lead, and wake the accepted writers. Their offsets are consecutive from the turn's."""
    queue.hand_on(leader)
    for offset, each in enumerate(accepted, turn.offset):
        each.version_id = turn.policy_version_id
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
