"""Run a sync over all patterns: compare, report, and apply the differences."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from argparse import ArgumentTypeError
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import IO, NamedTuple, Protocol, TypeVar, cast

import orjson

from facts import store
from facts.accept import FactRejected, UnknownName, UnknownNames, check_signature
from facts.models import COLUMNS, PAST
from facts.numbering import numbers_as_of, signature_numbers
from facts.read import id_conditions
from facts.store import Deletes, EndsStay, Inserts
from facts.table import fact_table, fetch, lasting, select
from facts.wire import Argument, Fact, FactBatch, FactPattern, id_from_json, is_plain
from localsql.binding_keys import BindingKey
from localsql.bindings import Binding
from localsql.sync.config import Config, PatternRefused, SourceFailed, SyncPattern, shown
from localsql.sync.sources import SourceRow, rows_of
from policy.active import active_program
from policy.core.config import settings
from policy.core.journal import By, current_offset
from policy.errors import AuthzError, MalformedRequest
from policy.management.command import counted
from policy.rules.program import Program
from policy.rules.types import PLACE
from policy.values import BOOLEAN, INTEGER, Value

# ---- rows ---------------------------------------------------------------------------------------------------------
# Rows -> ids of facts, validated like those from clients; invalid rows are counted and reported.

RowIds = tuple[str, ...]  # values of the pattern's variables
T = TypeVar("T")

ENOUGH = 100  # invalid rows to list; one more ends the reading, unless invalid rows are skipped
_SHOWN = 60  # characters of an invalid id


@dataclass
class PatternRead:
    """Counts and errors of a pattern's rows."""

    pattern: SyncPattern
    skips_bad: bool
    rows: int = 0
    nulls: int = 0  # rows with a NULL, which are not facts
    bad_count: int = 0
    bad: list[str] = field(default_factory=list)  # the first invalid rows

    def ids(self, rows: Iterable[SourceRow]) -> Iterator[RowIds]:
        """Yield the ids of the rows that are facts; () for each row of a pattern without variables."""
        types = [self.pattern.key.signature.types[index] for index in self.pattern.key.columns]
        has_one_spelling, has_columns = INTEGER not in types and BOOLEAN not in types, bool(types)
        for row in rows:
            self.rows += 1
            if None in row:
                self.nulls += 1
                continue
            if not has_columns:
                yield ()
                continue
            if (has_one_spelling and is_plain("".join(row), row)) or self._are_ids(types, row):  # type: ignore[arg-type]
                yield row  # type: ignore[misc]  # none of them is None

    @property
    def has_facts(self) -> bool:
        return self.rows > self.nulls + self.bad_count

    def _are_ids(self, types: list[str], row: SourceRow) -> bool:
        for type_name, text in zip(types, row):
            try:
                written = id_from_json(type_name, text, "id")
            except MalformedRequest as error:
                self._refuse(row, error.message)
                return False
            if written != text:
                self._refuse(row, f"the {type_name} `{_cut(text)}` must be written as {written}")
                return False
        return True

    def _refuse(self, row: SourceRow, reason: str) -> None:
        values = ", ".join(_cut(value) for value in row)
        if any((value or "").startswith("\0") for value in row):
            reason = next(value for value in row if value and value.startswith("\0"))[1:]  # the reader's own reason
        self.bad_count += 1
        if len(self.bad) < ENOUGH:
            self.bad.append(f"row {self.rows} ({values}): {shown(reason)}")
        elif not self.skips_bad:
            raise PatternRefused(self.sentence)

    @property
    def sentence(self) -> str:
        """The message about all invalid rows."""
        more = f"\n  and {self.bad_count - len(self.bad):,} more" if self.bad_count > len(self.bad) else ""
        return "invalid rows:\n  " + "\n  ".join(self.bad) + more


def _cut(text: str | None) -> str:
    text = text or ""
    return shown(text) if len(text) <= _SHOWN else f"{shown(text[:_SHOWN])}…"


# ---- sorting ------------------------------------------------------------------------------------------------------
# Both sides are sorted bytewise by ids, which is also Python's order of strings.
#
# Rows sorted by a database are verified as they arrive. Other rows are sorted in a temporary one, which is on disk if
# they are many.


class OutOfOrder(Exception):
    """The database does not sort texts bytewise."""


def in_order(rows: Iterable[RowIds]) -> Iterator[RowIds]:
    """Yield sorted rows without duplicates. Raise `OutOfOrder` if they are not sorted."""
    last: RowIds | None = None
    for row in rows:
        if last is not None and row <= last:
            if row == last:
                continue
            raise OutOfOrder
        last = row
        yield row


def brought_in_order(rows: Iterable[RowIds]) -> Iterator[RowIds]:
    """Sort rows and yield them without duplicates."""
    rows = iter(rows)
    first = next(rows, None)
    if not first:  # rows without columns are all the same
        yield from dict.fromkeys(rows if first is None else chain((first,), rows))
        return
    names, marks = ", ".join(f"c{index}" for index in range(len(first))), ", ".join("?" * len(first))
    try:
        with closing(sqlite3.connect("", isolation_level=None)) as database:
            database.execute(f"CREATE TABLE source ({names})")
            database.execute("BEGIN")
            database.executemany(f"INSERT INTO source VALUES ({marks})", chain((first,), rows))
            yield from database.execute(f"SELECT DISTINCT {names} FROM source ORDER BY {names}")
    except sqlite3.Error as reason:
        raise OSError(f"rows cannot be sorted: {reason}") from None  # such as on a full disk


# ---- temporary files ----------------------------------------------------------------------------------------------
# Differences are kept in a file until all patterns are compared: ids in the order in which they were found.

EXAMPLES = 5


class Spills(NamedTuple):
    """Temporary files for the additions, and the deletions, of all patterns."""

    added: IO[bytes]
    deleted: IO[bytes]


def next_part(file: IO[bytes]) -> PatternPart:
    """Return the next part of a file; it must be complete before another one is started."""
    return PatternPart(file, file.seek(0, 2))


@dataclass
class PatternPart:
    """The part of a temporary file for one pattern."""

    _file: IO[bytes]
    start: int
    count: int = 0
    examples: tuple[RowIds, ...] = ()

    def add(self, ids: RowIds) -> None:
        self._file.write(orjson.dumps(ids, option=orjson.OPT_APPEND_NEWLINE))
        if self.count < EXAMPLES:
            self.examples = (*self.examples, ids)
        self.count += 1

    def batches(self, size: int) -> Iterator[list[RowIds]]:
        place = self._file.seek(self.start)
        for begun in range(0, self.count, size):
            self._file.seek(place)
            lines = [self._file.readline() for _ in range(min(size, self.count - begun))]
            place = self._file.tell()
            yield [tuple(orjson.loads(line)) for line in lines]


# ---- stored facts -------------------------------------------------------------------------------------------------
# Stored facts of a pattern, bytewise in id order, in one snapshot; and those ended since.


def stored_ids(environment_id: int, key: BindingKey) -> Generator[RowIds, None, None]:
    """Yield the values of the pattern's variables in all stored facts that have not expired."""
    known = numbers_as_of(environment_id)
    number = known.numbers.get(key.signature)
    if number is None:
        return
    conditions, values = id_conditions([Argument(None, constant) for constant in key.constants])
    tests = (f"sig = {int(number)}{conditions}", lasting() if key.signature in known.ending else "")
    named = ", ".join(COLUMNS[index] for index in key.columns)
    rows = fact_table().stream(select(named or "sig", *tests, order=named), values)
    if named:
        yield from cast(Iterator[RowIds], rows)
    else:
        yield from (() for _ in rows)


def ended_by_others(environment_id: int, key: BindingKey, revision: int, own: Sequence[int]) -> set[tuple[str, ...]]:
    """Return the ids of the signature's facts that were ended after the revision, except by `own` revisions."""
    number = signature_numbers(environment_id).get(key.signature)
    if number is None:
        return set()
    names = ", ".join(COLUMNS[: len(key.constants)])
    others = f"until NOT IN ({', '.join(str(int(each)) for each in own)})" if own else ""
    return set(fetch(select(names, f"sig = {int(number)}", "until > %s", others, table=PAST), (revision,)))


# ---- comparison ---------------------------------------------------------------------------------------------------
# Facts are read before rows. So if an application commits a row and then adds its fact, or deletes a row and then its
# fact, a comparison in between never undoes that.

_REPORT_EVERY = 4_096  # facts and rows

OnProgress = Callable[[int], None]  # called with the number of facts and rows done


@dataclass(frozen=True)
class SyncPlan:
    """The changes that make a pattern's facts equal to its rows."""

    pattern: SyncPattern
    equal: int
    added: PatternPart
    deleted: PatternPart
    read: PatternRead
    revision: int  # the latest one when the comparison began

    @property
    def is_in_step(self) -> bool:
        return not (self.added.count or self.deleted.count)


def in_one_order(pattern: SyncPattern, read: Callable[[bool], T]) -> T:
    """Call `read` with whether the database sorts the rows: if it can, and turns out to sort them bytewise."""
    if isinstance(pattern.asked, Binding):
        with suppress(OutOfOrder):  # as in an SQLite file in UTF-16: sort its rows here instead
            return read(True)
    return read(False)


@contextmanager
def sorted_ids(read: PatternRead, by_database: bool) -> Iterator[Iterator[RowIds]]:
    with closing(rows_of(read.pattern, by_database)) as rows:
        yield in_order(read.ids(rows)) if by_database else brought_in_order(read.ids(rows))


def compared(
    environment_id: int,
    pattern: SyncPattern,
    spills: Spills,
    skips_bad: bool,
    on_progress: OnProgress,
    by_database: bool,
) -> SyncPlan:
    added, deleted, read = next_part(spills.added), next_part(spills.deleted), PatternRead(pattern, skips_bad)
    revision = current_offset(environment_id)
    with closing(stored_ids(environment_id, pattern.key)) as stored:
        first = next(stored, None)  # the first fetch takes the snapshot
        with sorted_ids(read, by_database) as source:
            equal = _merged(first, stored, source, added, deleted, on_progress)
    return SyncPlan(pattern, equal, added, deleted, read, revision)


def _merged(
    mine: RowIds | None,
    stored: Iterator[RowIds],
    source: Iterator[RowIds],
    added: PatternPart,
    deleted: PatternPart,
    on_progress: OnProgress,
) -> int:
    """Record the differences, and return the number of equal ids; `mine` is the first stored one."""
    equal = steps = 0
    theirs = next(source, None)
    while mine is not None or theirs is not None:
        steps += 1
        if not steps % _REPORT_EVERY:
            on_progress(steps)
        if mine == theirs:
            equal += 1
            mine, theirs = next(stored, None), next(source, None)
        elif theirs is None or (mine is not None and mine < theirs):
            deleted.add(cast(RowIds, mine))
            mine = next(stored, None)
        else:
            added.add(theirs)
            theirs = next(source, None)
    return equal


# ---- facts whose rows were deleted before the facts were stored ---------------------------------------------------
# Suppose that an application deletes a row, and tells the service to delete its fact, before a sync run that has read
# the row stores this fact. There is nothing to delete yet, and the fact would stay. So the rows of newly stored facts
# are read again. A row that is deleted after this is not a problem, because its fact exists and can be deleted.

_AT_ONCE = 5_000  # facts


def without_rows(plan: SyncPlan, spill: IO[bytes], by_database: bool) -> PatternPart:
    """Return the added facts whose rows no longer exist."""
    gone = next_part(spill)
    with sorted_ids(PatternRead(plan.pattern, skips_bad=True), by_database) as source:
        theirs = next(source, None)
        for batch in plan.added.batches(_AT_ONCE):
            for mine in batch:
                while theirs is not None and theirs < mine:
                    theirs = next(source, None)
                if theirs != mine:
                    gone.add(mine)
        for _ in source:  # read to the end: later rows may show that it is not in order
            pass
    return gone


# ---- apply --------------------------------------------------------------------------------------------------------
# Applies plans: first the deletions of all patterns, so that revoking does not wait for granting.
#
# Each batch is a transaction and a revision of its own, by the author `sync`. If a run is interrupted, its first
# batches are committed, and the next comparison finds the rest.

AUTHOR = By("sync")
BATCH = 5_000  # facts per change, which bounds how long other writers wait


class _NothingLeft(Exception):
    """Nothing is left of a batch to store, so it makes no revision."""


@dataclass
class Applying:
    """Applies plans in batches."""

    environment_id: int
    on_progress: Callable[[int], None] = lambda done: None
    revisions: list[int] = field(default_factory=list)  # that it made
    rejected: list[tuple[SyncPlan, FactRejected]] = field(default_factory=list)
    done: int = 0  # facts

    def apply(self, plans: Sequence[SyncPlan]) -> None:
        """Apply the plans. A plan whose facts a newer policy doesn't use goes to `rejected`."""
        for plan in plans:
            self.delete(plan.pattern.key, plan.deleted)
        for plan in plans:
            try:
                for batch in plan.added.batches(BATCH):
                    self._insert(plan, batch)
            except FactRejected as error:
                self.rejected.append((plan, error))

    def delete(self, key: BindingKey, part: PatternPart) -> None:
        for batch in part.batches(min(BATCH, settings.MAX_DELETE_MATCHES or BATCH)):
            self._change([Deletes(deleted(key, batch))])
            self._count(len(batch))

    def _insert(self, plan: SyncPlan, batch: Sequence[RowIds]) -> None:
        """Store a batch, except facts that were stored with an expiry meanwhile: these are left unchanged."""
        others: set[tuple[str, ...]] = set()
        while True:
            try:
                self._change(self._inserts(plan, batch, others))
            except _NothingLeft:
                pass
            except EndsStay as error:
                arity = len(plan.pattern.key.constants)
                others |= {tuple(str(each) for each in row[1 : 1 + arity]) for row in error.rows}
                continue
            break
        self._count(len(batch))

    def _inserts(self, plan: SyncPlan, batch: Iterable[RowIds], others: set[tuple[str, ...]]) -> Iterator[store.Change]:
        """Yield the change that stores the batch; this runs in its transaction, which locks the environment.

        So no fact can be ended between this check and the commit. Facts ended by others since the comparison began are
        left out, because their rows may be gone, too.
        """
        key = plan.pattern.key
        left_out = others | ended_by_others(self.environment_id, key, plan.revision, self.revisions)
        ids = [each for each in (whole(key, ids) for ids in batch) if each not in left_out]
        if not ids:
            raise _NothingLeft
        yield Inserts(FactBatch(ids={key.signature: ids}), None, ends_stay=True)

    def _change(self, changes: Iterable[store.Change]) -> None:
        self.revisions.append(store.apply(self.environment_id, changes, AUTHOR).offset)

    def _count(self, count: int) -> None:
        self.done += count
        self.on_progress(self.done)


def deleted(key: BindingKey, batch: Iterable[RowIds]) -> list[FactPattern]:
    types, predicate = key.signature.types, key.signature.predicate
    return [
        FactPattern(predicate, tuple([Argument(name, text) for name, text in zip(types, whole(key, ids))]))
        for ids in batch
    ]


def whole(key: BindingKey, ids: RowIds) -> tuple[str, ...]:
    """Return all arguments: the values of the variables, with the key's constants in their places.

    has_role(User:_, admin, Org:_) and ('alice', 'acme')  ->  ('alice', 'admin', 'acme')
    """
    left = iter(ids)
    return tuple([next(left) if constant is None else constant for constant in key.constants])


# ---- run ----------------------------------------------------------------------------------------------------------
# One run over all patterns: compare, and optionally apply. An error in one pattern does not affect the others.

FEW = 10  # facts that any share but 0% allows to be deleted, if some row of the source is a fact


@dataclass(frozen=True, slots=True)
class MostDeletes:
    """How many of a pattern's facts may be deleted at once: a number, or a share."""

    number: int | None = None
    percent: float = 10
    is_said: bool = False  # by the user, not the default

    def allows(self, deleted: int, stored: int, has_rows: bool) -> bool:
        if not deleted:
            return True
        if not (has_rows or self.is_said):
            return False
        if self.number is not None:
            return deleted <= self.number
        few = FEW if has_rows and self.percent else 0
        return deleted <= max(few, stored * self.percent / 100)

    def __str__(self) -> str:
        return f"{self.percent:g}%" if self.number is None else f"{self.number:,}"


def most_deletes(text: str) -> MostDeletes:
    """Parse `10%`, or a number of facts."""
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)%|([0-9]{1,12})", text, re.ASCII)
    if not found or (found[1] and float(found[1]) > 100):
        raise ArgumentTypeError(f"`{text}` is not a share such as 10%, or a number of facts")
    return MostDeletes(percent=float(found[1]), is_said=True) if found[1] else MostDeletes(int(found[2]), is_said=True)


@dataclass(frozen=True, slots=True)
class SyncOptions:
    applies: bool = False
    most_deletes: MostDeletes = MostDeletes()
    skips_bad: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """A pattern that was left unchanged, with the reason; `may_pass` if a retry may work."""

    pattern: SyncPattern
    reason: str
    may_pass: bool = False


@dataclass(frozen=True)
class Passed:
    """The results of a run, and whether they were applied."""

    plans: tuple[SyncPlan, ...]
    failed: tuple[Failed, ...]
    unknown: tuple[UnknownName, ...] = ()  # roles and relations that the policy does not declare
    revisions: int = 0
    taken_back: int = 0  # facts that were deleted again, because their rows were gone by then
    is_applied: bool = False

    @property
    def is_in_step(self) -> bool:
        return not self.failed and (self.is_applied or all(plan.is_in_step for plan in self.plans))


class ProgressListener(Protocol):
    def begin(self, pattern: SyncPattern, place: int) -> OnProgress: ...
    def compared(self, plan: SyncPlan) -> None: ...
    def failed(self, failed: Failed) -> None: ...
    def applying(self, changes: int) -> Callable[[int], None]: ...


def passed(environment_id: int, config: Config, wanted: SyncOptions, listener: ProgressListener) -> Passed:
    program = active_program(environment_id)
    plans: list[SyncPlan] = []
    failures: list[Failed] = []
    with tempfile.TemporaryFile() as added, tempfile.TemporaryFile() as deleted:
        spills = Spills(added, deleted)
        for place, pattern in enumerate(config.patterns):
            on_progress = listener.begin(pattern, place)
            try:
                if program is not None:
                    check_signature(program, pattern.key.signature)
                asked = partial(compared, environment_id, pattern, spills, wanted.skips_bad, on_progress)
                plan = in_one_order(pattern, asked)
                plans.append(plan)
                listener.compared(plan)
                _check(plan, wanted)
            except (AuthzError, SourceFailed) as error:
                if plans and plans[-1].pattern is pattern:
                    plans.pop()
                failures.append(Failed(pattern, error.message, isinstance(error, SourceFailed)))
                listener.failed(failures[-1])
        unknown = _unknown(program, plans)
        revisions = taken_back = 0
        changes = sum(plan.added.count + plan.deleted.count for plan in plans)
        if wanted.applies and changes:
            applying = Applying(environment_id, listener.applying(changes))
            applying.apply(plans)
            taken_back = sum(_taken_back(applying, plan, spills, failures, listener) for plan in plans)
            for plan, rejection in applying.rejected:
                plans.remove(plan)
                failures.append(Failed(plan.pattern, rejection.message))
                listener.failed(failures[-1])
            revisions = len(applying.revisions)
    return Passed(tuple(plans), tuple(failures), unknown, revisions, taken_back, wanted.applies)


def _taken_back(
    applying: Applying, plan: SyncPlan, spills: Spills, failures: list[Failed], listener: ProgressListener
) -> int:
    """Delete the newly stored facts whose rows no longer exist; return how many."""
    if not plan.added.count:
        return 0
    try:
        gone = in_one_order(plan.pattern, partial(without_rows, plan, spills.deleted))
    except (AuthzError, SourceFailed) as error:
        reason = f"facts were stored, but their rows could not be checked again: {error.message}"
        failures.append(Failed(plan.pattern, reason, isinstance(error, SourceFailed)))
        listener.failed(failures[-1])
        return 0
    applying.delete(plan.pattern.key, gone)
    return gone.count


def _unknown(program: Program | None, plans: list[SyncPlan]) -> tuple[UnknownName, ...]:
    """Return the roles and relations in added facts that the policy does not declare."""
    names = UnknownNames(program)
    for plan in plans:
        key = plan.pattern.key
        if plan.added.count and names.concern(key.signature):
            for batch in plan.added.batches(BATCH):
                names.take(key.signature, [whole(key, ids)[PLACE] for ids in batch])
    return tuple(names.unknown_names)


def _check(plan: SyncPlan, wanted: SyncOptions) -> None:
    """Refuse a plan that is most likely caused by a mistake in the source."""
    if plan.read.bad_count and not wanted.skips_bad:
        raise PatternRefused(f"{plan.read.sentence}\nCorrect these rows, or skip them with --skip-bad.")
    deleted, stored = plan.deleted.count, plan.equal + plan.deleted.count
    has_rows = plan.read.has_facts
    if wanted.applies and not wanted.most_deletes.allows(deleted, stored, has_rows):
        empty = "" if has_rows else f"; the source has no {'valid ' if plan.read.rows else ''}rows"
        raise PatternRefused(
            f"{deleted:,} of {stored:,} facts would be deleted, more than --max-deletes {wanted.most_deletes}"
            f" allows{empty}. If this is intended, pass --max-deletes 100%."
        )


# ---- messages about a run -----------------------------------------------------------------------------------------

MINUS = "\N{MINUS SIGN}"


def lines_of(plan: SyncPlan) -> Iterator[str]:
    """Yield the pattern with its counts, and examples of facts to add (`+`) and to delete (minus)."""
    yield f"{plan.pattern}  {plan.added.count:,} to add, {plan.deleted.count:,} to delete, {plan.equal:,} unchanged"
    yield from _examples(plan.pattern.key, "+", plan.added)
    yield from _examples(plan.pattern.key, MINUS, plan.deleted)
    if plan.read.nulls:
        yield f"  {counted(plan.read.nulls, 'row')} with a NULL, ignored"
    if plan.read.bad_count and plan.read.skips_bad:
        yield f"  skipped {plan.read.sentence}"


def _examples(key: BindingKey, sign: str, part: PatternPart) -> Iterator[str]:
    for ids in part.examples:
        yield f"  {sign} {shown(fact_of(key, ids).noted)}"
    if part.count > len(part.examples):
        yield f"  {sign} … and {part.count - len(part.examples):,} more"


def fact_of(key: BindingKey, ids: RowIds) -> Fact:
    signature = key.signature
    return Fact(signature.predicate, tuple([Value(*each) for each in zip(signature.types, whole(key, ids))]))


def summary(found: Passed) -> str:
    added = sum(plan.added.count for plan in found.plans)
    deleted = sum(plan.deleted.count for plan in found.plans)
    equal = sum(plan.equal for plan in found.plans)
    if not (added or deleted):
        said = f"{counted(equal, 'fact')} in sync"
    elif found.is_applied:
        back = f" ({found.taken_back:,} of them deleted again, as their rows were deleted)" if found.taken_back else ""
        revisions = counted(found.revisions, "revision")
        said = f"{added:,} added{back}, {deleted:,} deleted, {equal:,} unchanged, in {revisions}"
    else:
        said = f"{added:,} to add, {deleted:,} to delete, {equal:,} unchanged; run with --apply to apply them"
    patterns = {str(plan.pattern) for plan in found.plans} | {str(each.pattern) for each in found.failed}
    return said if not found.failed else f"{said}; {len(found.failed)} of {counted(len(patterns), 'pattern')} failed"
