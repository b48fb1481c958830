"""Load a file of facts in one transaction, and report invalid lines."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from django.db import (
    DatabaseError,
    IntegrityError,
    InternalError,
    OperationalError,
    connection,
    connections,
    transaction,
)

from facts.accept import UnknownName, UnknownNames, check_end, check_signature
from facts.models import COLUMNS, ROW_LENGTH, NewRow
from facts.numbering import signature_number
from facts.store import Ends, EndsStay
from facts.table import KEY, NAMES, ChangeCounts, changed, execute, fact_table, fetch, insert_from, note_stored, settle
from facts.wire import BadLine, Fact, FactKey, fact_from_json, last_of_each, plain_fact, remember, rest_of_row
from policy.active import program_of_version
from policy.core import clock, spans
from policy.core.clock import is_citus
from policy.core.config import settings
from policy.core.journal import NOBODY, By, Done, Kind, advance, changing, record
from policy.core.threads import thread_pool
from policy.errors import AuthzError
from policy.rules.program import Program, Signature
from policy.rules.types import PLACE

# Facts that are checked and stored together. SQLite sorts them: then more neighbors go to the same page.
CHUNK = {"sqlite": 50_000, "postgresql": 10_000}
ENOUGH = 100  # invalid lines, after which reading is aborted
NumberedFact = tuple[int, tuple[Any, ...]]  # a signature's number, and the columns after the ids


@dataclass(frozen=True, slots=True)
class Loaded:
    read: int
    inserted: int
    bad: tuple[BadLine, ...]
    unknown: tuple[UnknownName, ...] = ()  # roles and relations that the policy does not know; stored nevertheless


class _NothingNew(Exception):
    """Every fact is already stored: the transaction is rolled back, so that no empty revision is recorded."""


class LinesRejected(AuthzError):
    """Some lines are invalid, so nothing is loaded."""

    def __init__(self, bad: tuple[BadLine, ...]):
        self.bad = bad
        super().__init__("\n".join(map(str, bad)))


def load(
    environment_id: int,
    lines: Iterable[tuple[int, object]],
    skip_bad: bool = False,
    report: Callable[[int], None] = lambda read: None,
    by: By = NOBODY,
    ends_stay: bool = False,
    is_strict: bool = False,
) -> Loaded:
    """Store the facts of all lines, or raise `LinesRejected` and store none; with `skip_bad`, skip the invalid lines.

    A line is a `Fact`, the JSON of one, or a `BadLine`. With `ends_stay`, no line is stored if one of them has a fact
    that is already stored with another expiry, not even with `skip_bad`. With `is_strict`, or the setting
    `STRICT_FACTS`, a line whose role or relation the policy does not know is invalid.
    """
    with spans.lasting("load"), suppress(_NothingNew), changing():
        turn = advance(environment_id)
        program = program_of_version(turn.policy_version_id)
        ends = Ends(environment_id, turn)
        loading = nullcontext(Loader(fact_table().insert)) if connection.vendor == "sqlite" else loader_behind()
        with fact_table().expect_many(), loading as loader:
            names, is_strict = UnknownNames(program), is_strict or settings.STRICT_FACTS
            filing = _Filing(environment_id, turn.offset, program, names, skip_bad, is_strict, loader.settle)
            lines = iter(lines)
            while rows := filing.rows(islice(lines, CHUNK[connection.vendor])):
                right = list(filter(None, rows))
                if right and (skip_bad or not filing.bad):
                    try:
                        room = _with_room(right, ends, filing, loader, ends_stay)
                    except EndsStay as reason:
                        raise LinesRejected(filing.lines_of(rows, reason)) from None
                    loader.take(room)
                report(filing.read)
            if filing.bad and not skip_bad:
                raise LinesRejected(tuple(filing.bad))
        counts = ChangeCounts(loader.inserted)
        if ends.changed:
            settle(filing.numbers, turn.offset)
            counts = changed(filing.numbers, turn.offset, turn.offset)[turn.offset]
        loaded = Loaded(filing.read, counts.inserted, tuple(filing.bad), tuple(names.unknown_names))
        if not (counts.inserted or counts.deleted):
            raise _NothingNew
        done = Done(turn.offset, Kind.LOAD, by, turn.policy_version_id, counts.inserted, counts.deleted)
        record(environment_id, [done])
        note_stored(loader.inserted)
    return loaded


def _with_room(rows: list[NewRow], ends: Ends, filing: _Filing, loader: Loader, ends_stay: bool) -> list[NewRow]:
    """Return the rows to be stored. If facts may expire, first end the stored ones that get another expiry."""
    if not (filing.some_end or ends.may_end):
        return rows
    rows = last_of_each(rows)
    loader.bring_in()
    ends.make_way(rows, filing.some_end, ends_stay)
    return rows


@dataclass
class _Filing:
    """Converts lines to rows, and collects the invalid ones. `settle` is called before the database is used."""

    environment_id: int
    since: int
    program: Program | None
    names: UnknownNames
    skip_bad: bool
    is_strict: bool
    settle: Callable[[], None]
    read: int = 0
    some_end: bool = False  # among the rows made last
    numbers_of_lines: list[int] = field(default_factory=list)  # of these
    bad: list[BadLine] = field(default_factory=list)
    filed: dict[Signature, NumberedFact | str] = field(default_factory=dict)  # or why the policy does not accept them
    known: dict[FactKey, NumberedFact] = field(default_factory=dict)
    named: dict[int, Signature] = field(default_factory=dict)  # signatures whose facts have names that may be unknown

    def rows(self, lines: Iterable[tuple[int, object]]) -> list[NewRow | None]:
        """Return each line's row, or None if the line is invalid. No line's JSON is kept, to save memory."""
        rows: list[NewRow | None] = []
        numbers: list[int] = []
        self.some_end = False
        for number, line in lines:
            numbers.append(number)
            plain = plain_fact(line, self.known)
            if plain is None:
                rows.append(self._with_care(number, line))
            else:
                (sig, rest), ids = plain
                rows.append((sig, *(ids + rest)))
        self.read += len(rows)
        self.numbers_of_lines = numbers
        for kind in self.named:
            self._look_at_names(kind, rows, numbers)
        return rows

    def lines_of(self, rows: list[NewRow | None], reason: EndsStay) -> tuple[BadLine, ...]:
        """Return the lines, of those that were read last, whose facts are stored with another expiry."""
        made = zip(rows, self.numbers_of_lines)
        wrong = (number for row, number in made if row is not None and row[:ROW_LENGTH] in reason.rows)
        return tuple(BadLine(number, reason.message) for number in islice(wrong, ENOUGH))

    def _look_at_names(self, kind: int, rows: list[NewRow | None], numbers: list[int]) -> None:
        """Count names that the policy does not know. There is nearly always none, which is quick to detect."""
        column, signature = 1 + PLACE, self.named[kind]
        if self.names.has_unknown(signature, {row[column] for row in rows if row is not None and row[0] == kind}):
            if self.is_strict:
                self._refuse_unknown_names(kind, rows, numbers)
                return
            met = [(row[column], number) for row, number in zip(rows, numbers) if row is not None and row[0] == kind]
            self.names.take(signature, [name for name, _ in met], [number for _, number in met])

    def _refuse_unknown_names(self, kind: int, rows: list[NewRow | None], numbers: list[int]) -> None:
        column, signature = 1 + PLACE, self.named[kind]
        for place, row in enumerate(rows):
            if row is not None and row[0] == kind and self.names.has_unknown(signature, {row[column]}):
                rows[place] = None
                self._refuse(BadLine(numbers[place], str(self.names.named(signature, row[column]))))

    def _with_care(self, number: int, line: object) -> NewRow | None:
        if isinstance(line, BadLine):
            self._refuse(line)
            return None
        try:
            fact = line if isinstance(line, Fact) else fact_from_json(line, "")
            if fact.expires_at is not None:
                check_end(fact.expires_at, self._moment, "")
            filed = self.filed.get(fact.signature) or self._file(fact.signature)
        except AuthzError as error:
            self._refuse(BadLine(number, error.message))
            return None
        if isinstance(filed, str):
            self._refuse(BadLine(number, filed))
            return None
        self.some_end |= fact.expires_at is not None
        number_of_kind, rest = filed
        return (number_of_kind, *[value.id for value in fact.args], *rest[:-1], fact.expires_at)

    @cached_property
    def _moment(self) -> int:
        """Return the time at which the first expiry was read: all expiries of the file are compared with it."""
        self.settle()
        return clock.now()

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the signatures whose facts are stored."""
        return [filed[0] for filed in self.filed.values() if not isinstance(filed, str)]

    def _file(self, signature: Signature) -> NumberedFact | str:
        try:
            if self.program is not None:
                check_signature(self.program, signature)
        except AuthzError as error:
            self.filed[signature] = error.message
        else:
            self.settle()
            number = signature_number(self.environment_id, signature, self.since)
            filed = self.filed[signature] = number, rest_of_row(signature, self.since)
            remember(self.known, signature, filed)
            if self.names.concern(signature):
                self.named[number] = signature
        return self.filed[signature]

    def _refuse(self, line: BadLine) -> None:
        self.bad.append(line)
        if len(self.bad) >= ENOUGH and not self.skip_bad:
            raise LinesRejected(tuple(self.bad))


# ---- loading rows, chunk by chunk -----------------------------------------------------------------------------------


TURN = 0.0005  # seconds after which a thread yields the interpreter to another
USUAL_TURN = sys.getswitchinterval()


@dataclass
class Loader:
    """Stores rows at once, on the same thread."""

    _store: Callable[[Sequence[NewRow]], int]
    inserted: int = 0

    def take(self, rows: Sequence[NewRow]) -> None:
        self.inserted += self._store(rows)

    def settle(self) -> None:
        """Wait until no chunk is being stored, so that the caller may use the connection."""

    def bring_in(self) -> None:
        """Settle, and store all rows taken so far in the fact table, so that later statements see them."""
        self.settle()


@dataclass
class _LoaderBehind(Loader):
    """Stores a chunk while the next one is being read."""

    _: KW_ONLY
    _thread: Executor
    _first: FirstLoad | None  # None once its rows are in the fact table
    _under_way: Future[int] | None = None
    _kept: deque[Sequence[NewRow]] = field(default_factory=lambda: deque(maxlen=2))

    def take(self, rows: Sequence[NewRow]) -> None:
        tidy = list(rows) if self._first else sorted(set(rows))  # without indexes, order does not matter
        # Freeing thousands of rows takes time. So they are freed here, while the database stores others, and not on the
        # storing thread between two chunks, when the database waits.
        self._kept.append(tidy)
        self.settle()
        self._under_way = self._thread.submit(self._first.take if self._first else self._store, tidy)

    def settle(self) -> None:
        if self._under_way is not None:
            stored, self._under_way = self._under_way, None
            self.inserted += stored.result()

    def bring_in(self, is_the_end: bool = False) -> None:
        self.settle()
        if self._first is not None:
            self.inserted += self._first.end(may_be_alone=is_the_end)
            self._first = None


@contextmanager
def loader_behind() -> Iterator[Loader]:
    """Yield a loader for a database server: a second thread stores a chunk while this one reads the next.

    Both take turns with the same connection.
    """
    first = FirstLoad() if is_due() else None
    mine = connections[connection.alias]
    mine.inc_thread_sharing()
    sys.setswitchinterval(TURN)  # while the storing thread waits for the interpreter, the database is idle
    try:
        with thread_pool(1, initializer=connections.__setitem__, initargs=(mine.alias, mine)) as thread:
            loader = _LoaderBehind(_load_chunk, _thread=thread, _first=first)
            yield loader
            loader.bring_in(is_the_end=True)
    finally:
        sys.setswitchinterval(USUAL_TURN)
        mine.dec_thread_sharing()


def _load_chunk(rows: Sequence[NewRow]) -> int:
    """Store rows with COPY. If that fails on a fact that is already stored, use a temporary table.

    Citus may report such a fact as an internal error, and would count it if it came from another table.
    """
    with suppress(IntegrityError, InternalError), transaction.atomic():
        copy("authz_fact", rows)
        return len(rows)
    if is_citus():
        return fact_table().insert(rows)
    execute("CREATE TEMPORARY TABLE IF NOT EXISTS incoming (LIKE authz_fact) ON COMMIT DROP")
    copy("incoming", rows)
    inserted = insert_from("incoming")
    execute("TRUNCATE incoming")
    return inserted


# ---- Write rows to a PostgreSQL table with COPY --------------------------------------------------------------------

_TABS = 1 + len(COLUMNS)
_LINE = "%d" + "\t%s" * len(COLUMNS) + "\t%d%.0s\n"  # the last value is an expiry, which is not written


def copy(table: str, rows: Sequence[NewRow]) -> None:
    text = _written(rows)
    names = NAMES if text is None else f"{KEY}, since"
    with (
        connection.wrap_database_errors,
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table} ({names}) FROM STDIN") as target,
    ):
        if text is not None:
            target.write(text)
        else:
            for row in rows:
                target.write_row(row)


def _written(rows: Sequence[NewRow]) -> bytes | None:
    """Encode rows in COPY's text format, faster than the driver; None if a row has an expiry, or needs escaping."""
    if any(row[-1] is not None for row in rows):
        return None
    text = "".join([_LINE % row for row in rows])
    is_plain = text.count("\t") == _TABS * len(rows) and text.count("\n") == len(rows)
    return text.encode() if is_plain and "\\" not in text and "\r" not in text else None


# ---- first load ---------------------------------------------------------------------------------------------------
# The first load of many facts into a PostgreSQL database: the indexes are dropped, and rebuilt at the end.
#
# Maintaining an index takes longer than inserting the row; building all of them at the end takes a third of the time.
# The facts first go into a temporary table, so that readers are not blocked. Then, under an exclusive lock, the indexes
# of the empty table are dropped, the facts moved, and the same indexes rebuilt. Others are blocked for that time: about
# 3 seconds for a million facts.
#
# If the table has ever had a row, or others hold a lock on it, or the database's role may not do this, the facts are
# moved with the indexes in place.

LEAST = 20_000  # facts: fewer are not worth blocking others
_TRIES, _BETWEEN = 20, 0.05  # attempts to lock the table; seconds between two
_LOCKED = "55P03"  # PostgreSQL's code for a lock held by someone else
_UNTOUCHED = "pg_relation_size('authz_fact') = 0"


class _NotAlone(Exception):
    """Others use the table, or have written to it."""


def is_due() -> bool:
    """Return whether the fact table is empty for every transaction; older ones may still see rows deleted since.

    Citus keeps the rows in a table of another name, on another server.
    """
    return not is_citus() and bool(
        fetch(f"SELECT {_UNTOUCHED} AND has_database_privilege(current_database(), 'TEMPORARY')")[0][0]
    )


class FirstLoad:
    """Collects rows, and finally moves them into the fact table. All of it is one transaction."""

    def __init__(self) -> None:
        self._taken = 0
        execute("CREATE TEMPORARY TABLE waiting (LIKE authz_fact) ON COMMIT DROP")

    def take(self, rows: Sequence[NewRow]) -> int:
        """Add rows to the temporary table. Return 0, as none is inserted yet."""
        copy("waiting", rows)
        self._taken += len(rows)
        return 0

    def end(self, may_be_alone: bool) -> int:
        """Move the collected rows; return how many there are, without duplicates.

        The exclusive lock is held until the transaction ends, so `may_be_alone` is for the end of a load.
        """
        try:
            moved = self._moved_alone() if may_be_alone and self._taken >= LEAST else None
        except OperationalError:
            raise  # cancelled, or the connection is lost
        except (DatabaseError, _NotAlone):  # a duplicate fact, or a role that does not own the table
            moved = None
        if moved is None:
            moved = insert_from("waiting")
        execute("DROP TABLE waiting")
        return moved

    def _moved_alone(self) -> int:
        with transaction.atomic():  # also releases the lock on failure
            _lock()
            if not fetch(f"SELECT {_UNTOUCHED}")[0][0]:
                raise _NotAlone
            constraints, indexes = fetch(_CONSTRAINTS), fetch(_INDEXES)
            for name, _ in constraints:
                execute(f"ALTER TABLE authz_fact DROP CONSTRAINT {name}")
            for name, _ in indexes:
                execute(f"DROP INDEX {name}")
            moved = insert_from("waiting", conflicts="")
            for name, definition in constraints:  # first: they detect duplicate facts
                execute(f"ALTER TABLE authz_fact ADD CONSTRAINT {name} {definition}")
            for _, definition in indexes:
                execute(definition)
        return moved


# Names as statements write them. Indexes of constraints are dropped and created with these.
_CONSTRAINTS = """
SELECT quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = 'authz_fact'::regclass AND contype IN ('p', 'u') ORDER BY contype
"""
_INDEXES = """
SELECT quote_ident(c.relname), pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'authz_fact'::regclass AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid)
ORDER BY c.relname
"""


def _lock() -> None:
    """Lock the table exclusively, with NOWAIT: a waiting lock request would block readers that come after it."""
    for _ in range(_TRIES):
        try:
            with transaction.atomic():
                execute("LOCK TABLE authz_fact IN ACCESS EXCLUSIVE MODE NOWAIT")
            return
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != _LOCKED:
                raise
        time.sleep(_BETWEEN)
    raise _NotAlone
