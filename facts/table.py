"""Bulk reads and writes of the fact table, and the database's statistics of it."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import islice
from operator import itemgetter
from threading import Lock
from typing import Any, Protocol

from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    IntegrityError,
    OperationalError,
    connection,
    connections,
    transaction,
)

from facts.models import COLUMNS, GoneRow, NewRow, Row
from policy.ground import memory
from policy.ground.threads import thread_pool

# ---- statistics ---------------------------------------------------------------------------------------------------
# The database's statistics of the fact table: PostgreSQL's are kept up to date, SQLite's are dropped.
#
# PostgreSQL chooses an index by its statistics, which autovacuum updates only about once a minute. A table that was
# just filled has none: a list query over it read a whole signature for each row of another.
#
# On SQLite, statements are written for a table without statistics, and statistics can make the planner's choices worse:
# a query about nested teams took ten times as long after `ANALYZE`. So every run of `migrate` drops the results of an
# `ANALYZE`.

FEWEST = 500  # facts: fewer are quick to read by any index
SHARE = 0.1  # of the number of facts at the last ANALYZE


def forget_statistics() -> None:
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat1', 'sqlite_stat4')")
            for (name,) in cursor.fetchall():
                cursor.execute(f"DROP TABLE {name}")


class _Stored:
    """Counts facts that this process has stored since its last ANALYZE."""

    def __init__(self) -> None:
        self.number = 0
        self.due = FEWEST  # check the statistics at this number: a check takes three statements
        self.lock = Lock()

    def add(self, number: int) -> int:
        with self.lock:
            self.number += number
            return self.number

    def take(self, number: int) -> None:
        with self.lock:
            self.number -= number
            self.due = FEWEST


_stored = _Stored()


def note_stored(number: int) -> None:
    """Note that this transaction stores this many facts; once it is committed, run ANALYZE if it is due."""
    if number:
        # `robust`: an error here must not turn a committed change into an error response.
        transaction.on_commit(lambda: _look(_stored.add(number)), robust=True)


def _look(stored: int) -> None:
    if stored < _stored.due:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT reltuples FROM pg_class WHERE oid = 'fact'::regclass")
        (counted,) = cursor.fetchone()
        if stored < max(FEWEST, counted * SHARE):
            _stored.due = stored + FEWEST
            return
        _stored.take(stored)
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute("ANALYZE (SKIP_LOCKED) fact")


# ---- Write rows to a PostgreSQL table with COPY --------------------------------------------------------------------

KEY = ", ".join(("sig", *COLUMNS))
NAMES = f"{KEY}, since, expires_at"

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
_UNTOUCHED = "pg_relation_size('fact') = 0"


class _NotAlone(Exception):
    """Others use the table, or have written to it."""


def is_due() -> bool:
    """Return whether the fact table is empty for every transaction; older ones may still see rows deleted since."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_UNTOUCHED} AND has_database_privilege(current_database(), 'TEMPORARY')")
        return bool(cursor.fetchone()[0])


class FirstLoad:
    """Collects rows, and finally moves them into the fact table. All of it is one transaction."""

    def __init__(self) -> None:
        self._taken = 0
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE waiting (LIKE fact) ON COMMIT DROP")

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
            moved = self._moved(" ON CONFLICT DO NOTHING")
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE waiting")
        return moved

    def _moved(self, conflicts: str = "") -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO fact ({NAMES}) SELECT {NAMES} FROM waiting{conflicts}")
            return cursor.rowcount

    def _moved_alone(self) -> int:
        with transaction.atomic():  # also releases the lock on failure
            _lock()
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT {_UNTOUCHED}")
                if not cursor.fetchone()[0]:
                    raise _NotAlone
                cursor.execute(_CONSTRAINTS)
                constraints = cursor.fetchall()
                cursor.execute(_INDEXES)
                indexes = cursor.fetchall()
                for name, _ in constraints:
                    cursor.execute(f"ALTER TABLE fact DROP CONSTRAINT {name}")
                for name, _ in indexes:
                    cursor.execute(f"DROP INDEX {name}")
                moved = self._moved()
                for name, definition in constraints:  # first: they detect duplicate facts
                    cursor.execute(f"ALTER TABLE fact ADD CONSTRAINT {name} {definition}")
                for _, definition in indexes:
                    cursor.execute(definition)
        return moved


# Names as statements write them. Indexes of constraints are dropped and created with these.
_CONSTRAINTS = """
SELECT quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = 'fact'::regclass AND contype IN ('p', 'u') ORDER BY contype
"""
_INDEXES = """
SELECT quote_ident(c.relname), pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'fact'::regclass AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid)
ORDER BY c.relname
"""


def _lock() -> None:
    """Lock the table exclusively, with NOWAIT: a waiting lock request would block readers that come after it."""
    for _ in range(_TRIES):
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("LOCK TABLE fact IN ACCESS EXCLUSIVE MODE NOWAIT")
            return
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != _LOCKED:
                raise
        time.sleep(_BETWEEN)
    raise _NotAlone


# ---- Bulk reads and writes of the fact table, as is fastest on each database ---------------------------------------

AT_ONCE = 2_000  # rows per fetch
OF_FACT = 1_500  # bytes that a fact takes while JSON is made of it, besides its strings
RUN = 50_000  # rows that are sorted and inserted together on SQLite; longer runs are no faster per row
TURN = 0.0005  # seconds after which a thread yields the interpreter to another

_EACH = " AND ".join(f"{name} = %s" for name in ("sig", *COLUMNS))
_EQUAL = " AND ".join(f"fact.{name} = gone.{name}" for name in ("sig", *COLUMNS))


class TableWriter(Protocol):
    def insert(self, rows: Sequence[NewRow]) -> int: ...
    def loader(self) -> AbstractContextManager[Loader]: ...
    def end(self, rows: Sequence[GoneRow]) -> int: ...
    def end_others(self, rows: Sequence[NewRow]) -> int: ...
    def end_all(self, condition: str, values: Sequence[int | str], until: int) -> int: ...
    def stream(self, statement: str, values: Sequence[int | str] = ()) -> Iterator[Row]: ...
    def fetched(self, statement: str, values: Sequence[int | str] = ()) -> list[Row]: ...
    def lift_time_limit(self) -> None: ...
    def expect_many(self) -> AbstractContextManager[None]: ...
    def note_stored(self, number: int) -> None: ...


class SqliteTable:
    def insert(self, rows: Sequence[NewRow]) -> int:
        inserted = f"INSERT INTO fact ({NAMES}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
        with connection.cursor() as cursor:
            cursor.executemany(inserted, _in_order(rows))
            return cursor.rowcount

    def loader(self) -> AbstractContextManager[Loader]:
        return loader_of_runs(self.insert)

    def end(self, rows: Sequence[GoneRow]) -> int:
        condition = _EACH
        ordered = _in_order(rows)
        with connection.cursor() as cursor:
            cursor.executemany(_moved(condition), [(row[-1], *row[:-1]) for row in ordered])
            cursor.executemany(f"DELETE FROM fact WHERE {condition}", [row[:-1] for row in ordered])
            return cursor.rowcount

    def end_others(self, rows: Sequence[NewRow]) -> int:
        """End the stored facts whose rows are given with another expiry."""
        condition = f"{_EACH} AND expires_at IS NOT %s"
        ordered = _in_order(rows)
        with connection.cursor() as cursor:
            cursor.executemany(_moved(condition), [(row[-2], *row[:-2], row[-1]) for row in ordered])
            cursor.executemany(f"DELETE FROM fact WHERE {condition}", [(*row[:-2], row[-1]) for row in ordered])
            return cursor.rowcount

    def end_all(self, condition: str, values: Sequence[int | str], until: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute(_moved(condition), (until, *values))
            cursor.execute(f"DELETE FROM fact WHERE {condition}", values)
            return cursor.rowcount

    def stream(self, statement: str, values: Sequence[int | str] = ()) -> Iterator[Row]:
        """Yield the rows of one statement, and so of one snapshot, without a transaction that would block writers."""
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            while rows := cursor.fetchmany(AT_ONCE):
                yield from rows

    def fetched(self, statement: str, values: Sequence[int | str] = ()) -> list[Row]:
        """Return all rows of a statement, counting them against the memory budget as they arrive."""
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return memory.fetched(cursor, OF_FACT)

    def lift_time_limit(self) -> None:
        """Disable the statement timeout for the rest of the transaction: it is for queries, not for changes."""

    @contextmanager
    def expect_many(self) -> Iterator[None]:
        """Enlarge the page cache, so that a page that changes often is not written to disk each time."""
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA cache_size = -131072")
        yield
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA cache_size = -2000")  # the default: pages beyond it are freed after the commit

    def note_stored(self, number: int) -> None:
        """Do nothing: on SQLite, statements name their index, and no statistics are needed."""


_TEXTS = ", ".join(["%s::text[]"] * len(COLUMNS))
# For PostgreSQL: inserts rows that are given as arrays, one for each column. A WHERE may follow.
INSERTING = f"INSERT INTO fact ({NAMES}) SELECT * FROM unnest(%s::integer[], {_TEXTS}, %s::bigint[], %s::bigint[])"


def columns_of(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows)]


class PostgresqlTable:
    def insert(self, rows: Sequence[NewRow]) -> int:
        return self._with_arrays(f"{INSERTING} ON CONFLICT DO NOTHING", rows)

    def loader(self) -> AbstractContextManager[Loader]:
        return loader_behind(self._load, FirstLoad() if is_due() else None)

    def _load(self, rows: Sequence[NewRow]) -> int:
        """Store rows with COPY. If that fails on a fact that is already stored, use a temporary table."""
        try:
            with transaction.atomic():
                copy("fact", rows)
            return len(rows)
        except IntegrityError:
            return self._load_around_conflicts(rows)

    def _load_around_conflicts(self, rows: Sequence[NewRow]) -> int:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE IF NOT EXISTS incoming (LIKE fact) ON COMMIT DROP")
            copy("incoming", rows)
            cursor.execute(f"INSERT INTO fact ({NAMES}) SELECT {NAMES} FROM incoming ON CONFLICT DO NOTHING")
            inserted = cursor.rowcount
            cursor.execute("TRUNCATE incoming")
        return inserted

    def end(self, rows: Sequence[GoneRow]) -> int:
        arrays = f"unnest(%s::integer[], {_TEXTS}, %s::bigint[]) AS gone ({KEY}, until)"
        return self._with_arrays(_ended(f"DELETE FROM fact USING {arrays} WHERE {_EQUAL}", "gone.until"), rows)

    def end_others(self, rows: Sequence[NewRow]) -> int:
        """End the stored facts whose rows are given with another expiry."""
        kept = f"({KEY}, until, expires_at)"
        arrays = f"unnest(%s::integer[], {_TEXTS}, %s::bigint[], %s::bigint[]) AS gone {kept}"
        condition = f"{_EQUAL} AND fact.expires_at IS DISTINCT FROM gone.expires_at"
        return self._with_arrays(_ended(f"DELETE FROM fact USING {arrays} WHERE {condition}", "gone.until"), rows)

    def end_all(self, condition: str, values: Sequence[int | str], until: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute(_ended(f"DELETE FROM fact WHERE {condition}", "%s::bigint"), (*values, until))
            return cursor.rowcount

    def stream(self, statement: str, values: Sequence[int | str] = ()) -> Iterator[Row]:
        """Yield the rows of one snapshot with a server-side cursor, without holding the result in memory."""
        with transaction.atomic():
            self.lift_time_limit()
            with connection.chunked_cursor() as cursor:
                cursor.execute(statement, values)
                while rows := cursor.fetchmany(AT_ONCE):
                    yield from rows

    def fetched(self, statement: str, values: Sequence[int | str] = ()) -> list[Row]:
        """Return all rows of a statement, counting them against the memory budget as they arrive.

        `execute` would buffer the whole result in the driver before any of it could be counted.
        """
        driver: Any = connection.Database  # type: ignore[attr-defined]  # psycopg; servers on SQLite do without it
        size = memory.AT_ONCE if driver.capabilities.has_stream_chunked() else 1
        with (
            connection.wrap_database_errors, connection.cursor() as cursor,
            closing(cursor.cursor.stream(statement, values, size=size)) as rows,
        ):  # fmt: skip
            return memory.fetched(_Streamed(rows), OF_FACT)

    def lift_time_limit(self) -> None:
        """Disable the statement timeout for the rest of the transaction: it is for queries, not for changes."""
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")

    @contextmanager
    def expect_many(self) -> Iterator[None]:
        self.lift_time_limit()
        yield

    def note_stored(self, number: int) -> None:
        note_stored(number)

    def _with_arrays(self, statement: str, rows: Sequence[Sequence[object]]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement, columns_of(rows))
            return cursor.rowcount


class _Streamed:
    def __init__(self, rows: Iterator[Row]):
        self._rows = rows

    def fetchmany(self, size: int) -> list[Row]:
        return list(islice(self._rows, size))


def _in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sort rows by signature and first id, so that neighboring rows go to the same page.

    Comparing whole rows would take a tenth of the time of a load, and gain little.
    """
    ordered = sorted(rows, key=itemgetter(1))
    ordered.sort(key=itemgetter(0))
    return ordered


def _moved(condition: str) -> str:
    """Return the INSERT that copies facts to the past facts; its first parameter is the revision that ends them."""
    kept = f"{KEY}, since, until, expires_at"
    return f"INSERT INTO past_fact ({kept}) SELECT {KEY}, since, %s, expires_at FROM fact WHERE {condition}"


def _ended(deleting: str, until: str) -> str:
    """Wrap a DELETE of facts into a statement that also inserts them into the past facts."""
    keys = ", ".join(f"fact.{name}" for name in ("sig", *COLUMNS))
    gone = f"WITH ended AS ({deleting} RETURNING {keys}, fact.since, {until} AS until, fact.expires_at)"
    return f"{gone} INSERT INTO past_fact ({KEY}, since, until, expires_at) SELECT * FROM ended"


_TABLES: dict[str, TableWriter] = {"sqlite": SqliteTable(), "postgresql": PostgresqlTable()}


def fact_table() -> TableWriter:
    """Return the table for the connected database."""
    return _TABLES[connection.vendor]


# ---- loading rows, chunk by chunk -----------------------------------------------------------------------------------


class Loader:
    """Stores chunks of rows as they arrive."""

    def __init__(self, store: Callable[[Sequence[NewRow]], int]):
        self._store = store
        self.inserted = 0

    def take(self, rows: Sequence[NewRow]) -> None:
        self.inserted += self._store(rows)

    def settle(self) -> None:
        """Wait until no chunk is being stored, so that the caller may use the connection."""

    def bring_in(self) -> None:
        """Settle, and store all rows taken so far in the fact table, so that later statements see them."""
        self.settle()


class _LoaderOfRuns(Loader):
    """Merges chunks to sort more rows at once: then more neighbors go to the same page."""

    def __init__(self, store: Callable[[Sequence[NewRow]], int]):
        super().__init__(store)
        self._gathered: list[NewRow] = []

    def take(self, rows: Sequence[NewRow]) -> None:
        self._gathered += rows
        if len(self._gathered) >= RUN:
            self.settle()

    def settle(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            super().take(gathered)


@contextmanager
def loader_of_runs(store: Callable[[Sequence[NewRow]], int]) -> Iterator[Loader]:
    """Yield a loader for SQLite, which stores on the same thread."""
    loader = _LoaderOfRuns(store)
    yield loader
    loader.settle()


class _LoaderBehind(Loader):
    """Stores a chunk while the next one is being read."""

    def __init__(self, store: Callable[[Sequence[NewRow]], int], thread: Executor, first: FirstLoad | None):
        super().__init__(store)
        self._thread = thread
        self._first = first  # None once its rows are in the fact table
        self._under_way: Future[int] | None = None
        self._kept: deque[Sequence[NewRow]] = deque(maxlen=2)

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
def loader_behind(store: Callable[[Sequence[NewRow]], int], first: FirstLoad | None) -> Iterator[Loader]:
    """Yield a loader for a database server: a second thread stores a chunk while this one reads the next.

    Both take turns with the same connection. A process may run one such load at a time.
    """
    mine = connections[DEFAULT_DB_ALIAS]
    mine.inc_thread_sharing()
    usual_turn = sys.getswitchinterval()
    sys.setswitchinterval(TURN)  # while the storing thread waits for the interpreter, the database is idle
    try:
        with thread_pool(1, initializer=connections.__setitem__, initargs=(DEFAULT_DB_ALIAS, mine)) as thread:
            loader = _LoaderBehind(store, thread, first)
            yield loader
            loader.bring_in(is_the_end=True)
    finally:
        sys.setswitchinterval(usual_turn)
        mine.dec_thread_sharing()
