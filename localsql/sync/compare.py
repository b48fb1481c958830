"""Compare stored facts with rows, in one order of ids."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, cast

import orjson
from django.db import connection

from facts.ends import lasting
from facts.models import COLUMNS
from facts.numbering import numbers_and_ends, signature_numbers
from facts.read import index_condition
from facts.table import fact_table
from facts.wire import MAX_ID_BYTES, id_from_json
from localsql.bindings import BindingKey
from localsql.sync.config import PatternRefused, SyncPattern, shown
from localsql.sync.sources import SourceRow, can_sort, rows_of
from policy.errors import MalformedRequest
from policy.ground.journal import current_offset
from policy.values import BOOLEAN, INTEGER

# ---- rows ---------------------------------------------------------------------------------------------------------
# Rows -> ids of facts, checked as those that a client sends; rows that are no facts are counted and reported.

RowIds = tuple[str, ...]  # of the pattern's variables

ENOUGH = 100  # wrong rows that are listed; reading ends with the next one, unless they are skipped
_SHOWN = 60  # characters of a wrong id
_SHORT = MAX_ID_BYTES // 4  # characters that are never more bytes than an id may have


@dataclass
class PatternRead:
    """What became of a pattern's rows."""

    pattern: SyncPattern
    skips_bad: bool
    rows: int = 0
    nulls: int = 0  # rows with a NULL: they are no facts
    bad_count: int = 0
    bad: list[str] = field(default_factory=list)  # the first of them

    def ids(self, rows: Iterable[SourceRow]) -> Iterator[RowIds]:
        """Yield the ids of the rows that are facts; () for each row of a pattern without variables."""
        types = [self.pattern.key.signature.types[index] for index in self._columns]
        is_plain, has_columns = INTEGER not in types and BOOLEAN not in types, bool(types)
        for row in rows:
            self.rows += 1
            if None in row:
                self.nulls += 1
                continue
            if not has_columns:
                yield ()
                continue
            text = "".join(row)  # type: ignore[arg-type]  # none of them is None
            plain = is_plain and len(text) <= _SHORT and text.isascii() and "\0" not in text
            if (plain and "" not in row and "*" not in row) or self._are_ids(types, row):
                yield row  # type: ignore[misc]  # likewise

    @property
    def has_facts(self) -> bool:
        return self.rows > self.nulls + self.bad_count

    @property
    def _columns(self) -> list[int]:
        return [index for index, constant in enumerate(self.pattern.key.constants) if constant is None]

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
        """The message about all wrong rows."""
        more = f"\n  and {self.bad_count - len(self.bad):,} more" if self.bad_count > len(self.bad) else ""
        return "these rows can be no facts:\n  " + "\n  ".join(self.bad) + more


def _cut(text: str | None) -> str:
    text = text or ""
    return shown(text) if len(text) <= _SHOWN else f"{shown(text[:_SHOWN])}…"


# ---- sorting ------------------------------------------------------------------------------------------------------
# Both sides in one order: that of the bytes of their ids, which is also Python's order of texts.
#
# Rows that a database has sorted are checked as they come. Other rows are sorted here: in memory, or, if they are too
# many, in files that are merged.

MOST_ROWS = 50_000  # in memory
MOST_CHARACTERS = 8_000_000
MOST_FILES = 64  # that are merged at once
_BUFFER = 1 << 15  # bytes of each


class OutOfOrder(Exception):
    """A database's order of texts is not that of their bytes."""


def in_order(rows: Iterable[RowIds]) -> Iterator[RowIds]:
    """Yield sorted rows, each once; raise `OutOfOrder` if they are not sorted."""
    last: RowIds | None = None
    for row in rows:
        if last is not None and row <= last:
            if row == last:
                continue
            raise OutOfOrder
        last = row
        yield row


def brought_in_order(rows: Iterable[RowIds], most_rows: int = MOST_ROWS) -> Iterator[RowIds]:
    """Yield rows in order, each once, in whatever order they come."""
    rows = iter(rows)
    first = _part(rows, most_rows)
    second = _part(rows, most_rows)
    if not second:
        yield from first
        return
    with ExitStack() as files:
        runs = [_written(files, first), _written(files, second)]
        while part := _part(rows, most_rows):
            runs.append(_written(files, part))
            if len(runs) == MOST_FILES:
                runs = [_written(files, _merged_runs(runs))]
        del first, second
        yield from _merged_runs(runs)


def _part(rows: Iterator[RowIds], most_rows: int) -> list[RowIds]:
    """Return the next rows, as many as memory may hold, sorted and each once."""
    found: set[RowIds] = set()
    characters = 0
    while len(found) < most_rows and characters < MOST_CHARACTERS:
        some = list(islice(rows, 1_000))
        if not some:
            break
        found.update(some)
        characters += sum([len(each) for row in some for each in row])
    return sorted(found)


def _merged_runs(runs: list[IO[bytes]]) -> Iterator[RowIds]:
    last: RowIds | None = None
    for row in heapq.merge(*map(_read, runs)):
        if row != last:
            last = row
            yield row
    for run in runs:
        run.close()


def _written(files: ExitStack, rows: Iterable[RowIds]) -> IO[bytes]:
    file = files.enter_context(tempfile.TemporaryFile(buffering=_BUFFER))  # noqa: SIM115  that closes it
    for row in rows:
        file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    file.seek(0)
    return file


def _read(file: IO[bytes]) -> Iterator[RowIds]:
    for line in file:
        yield tuple(orjson.loads(line))


# ---- spill --------------------------------------------------------------------------------------------------------
# Differences, kept in a file until all patterns are compared: ids in the order in which they were found.

EXAMPLES = 5


class Spill:
    """A file for the additions, or the deletions, of all patterns. It is gone once closed, or with its process."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed with the pass

    def close(self) -> None:
        self._file.close()

    def part(self) -> PatternPart:
        """Return the next part; it must be written before another one is begun."""
        return PatternPart(self._file, self._file.seek(0, 2))


@dataclass
class PatternPart:
    """The part of one pattern."""

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


# ---- stored -------------------------------------------------------------------------------------------------------
# Our side: stored facts of a pattern, by the bytes of their ids, as of one moment; and those ended since.


def stored_ids(environment_id: int, key: BindingKey) -> Generator[RowIds, None, None]:
    """Yield the ids of the pattern's variables, of all stored facts that have not ended."""
    numbers, may_end = numbers_and_ends(environment_id)
    number = numbers.get(key.signature)
    if number is None:
        return
    conditions, values = [f"sig = {int(number)}"], []
    for name, constant in zip(COLUMNS, key.constants):
        if constant is not None:
            conditions.append(f"{name} = %s{index_condition(name)}")
            values.append(constant)
    if number in may_end:
        conditions.append(lasting())
    wanted = [name for name, constant in zip(COLUMNS, key.constants) if constant is None]
    named = ", ".join(wanted)
    order = f" ORDER BY {named}" if wanted else ""
    statement = f"SELECT {named or 'sig'} FROM fact WHERE {' AND '.join(conditions)}{order}"
    rows = fact_table().stream(statement, values)
    if wanted:
        yield from cast(Iterator[RowIds], rows)
    else:
        yield from (() for _ in rows)


def ended_by_others(environment_id: int, key: BindingKey, revision: int, own: Sequence[int]) -> set[tuple[str, ...]]:
    """Return all ids of facts of the pattern's signature that were ended after the revision, except by `own` ones."""
    number = signature_numbers(environment_id).get(key.signature)
    if number is None:
        return set()
    names = ", ".join(COLUMNS[: len(key.constants)])
    others = f" AND until NOT IN ({', '.join(str(int(each)) for each in own)})" if own else ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {names} FROM past_fact WHERE sig = {int(number)} AND until > %s{others}", (revision,))
        return {tuple(row) for row in cursor.fetchall()}


# ---- Compares the facts of one pattern with its rows --------------------------------------------------------------
# The facts are read first. So an application that commits a row and then adds its fact, or deletes a row and then its
# fact, is never contradicted by a comparison in between.

_REPORT_EVERY = 4_096  # facts and rows

OnProgress = Callable[[int], None]  # called with how many facts and rows are done


@dataclass(frozen=True)
class SyncPlan:
    """The changes that make a pattern's facts those of its rows."""

    pattern: SyncPattern
    equal: int
    added: PatternPart
    deleted: PatternPart
    read: PatternRead
    revision: int  # the latest one when the comparison began

    @property
    def stored(self) -> int:
        return self.equal + self.deleted.count

    @property
    def is_in_step(self) -> bool:
        return not (self.added.count or self.deleted.count)


@dataclass
class Spills:
    added: Spill
    deleted: Spill


def compared(
    environment_id: int, pattern: SyncPattern, spills: Spills, skips_bad: bool, on_progress: OnProgress
) -> SyncPlan:
    if can_sort(pattern):
        try:
            return _compared(
                environment_id, pattern, spills, PatternRead(pattern, skips_bad), on_progress, by_database=True
            )
        except OutOfOrder:  # as in an SQLite file whose texts are in UTF-16: its rows are sorted here instead
            pass
    return _compared(environment_id, pattern, spills, PatternRead(pattern, skips_bad), on_progress, by_database=False)


def _compared(
    environment_id: int,
    pattern: SyncPattern,
    spills: Spills,
    read: PatternRead,
    on_progress: OnProgress,
    by_database: bool,
) -> SyncPlan:
    added, deleted = spills.added.part(), spills.deleted.part()
    revision = current_offset(environment_id)
    with closing(stored_ids(environment_id, pattern.key)) as stored:
        first = next(stored, None)  # from the first one on, all are as of one moment
        with closing(rows_of(pattern, by_database)) as rows:
            ids = read.ids(rows)
            source = in_order(ids) if by_database else brought_in_order(ids)
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
    """Note what differs, and return how many are on both sides; `mine` is the first of the stored ones."""
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


# ---- Finds facts that were just stored and have no row any more ---------------------------------------------------
# Suppose that an application deletes a row, and tells the service to delete its fact, before a comparison that has
# read the row stores this fact. Nothing is there to be deleted yet, and the fact would stay. So the rows of facts
# that were stored are read again. A row that is deleted after this is no problem: its fact is there to be deleted.

_AT_ONCE = 5_000  # facts


def without_rows(plan: SyncPlan, spill: Spill) -> PatternPart:
    """Return those of the added facts that have no row any more."""
    if can_sort(plan.pattern):
        with suppress(OutOfOrder):
            return _without_rows(plan, spill.part(), by_database=True)
    return _without_rows(plan, spill.part(), by_database=False)


def _without_rows(plan: SyncPlan, gone: PatternPart, by_database: bool) -> PatternPart:
    read = PatternRead(plan.pattern, skips_bad=True)
    with closing(rows_of(plan.pattern, by_database)) as rows:
        ids = read.ids(rows)
        source = in_order(ids) if by_database else brought_in_order(ids)
        theirs = next(source, None)
        for batch in plan.added.batches(_AT_ONCE):
            for mine in batch:
                while theirs is not None and theirs < mine:
                    theirs = next(source, None)
                if theirs != mine:
                    gone.add(mine)
        for _ in source:  # to its end: later rows may show that it is not in order
            pass
    return gone
