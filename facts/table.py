"""Bulk writing and reading of the fact table, and the database's statistics of it."""

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
# PostgreSQL chooses an index by its statistics, and autovacuum updates these only once a minute or so. A table that
# was filled a moment ago has none: a list over it read a whole signature for each row of another.
#
# On SQLite, statements are written for a table without statistics, and statistics can make its choices worse: a
# question about nested teams took ten times as long after `ANALYZE`. So every run of `migrate` drops what an
# `ANALYZE` left.

FEWEST = 500  # facts: fewer are quick to read by any index
SHARE = 0.1  # of the facts that were counted last


def forget_statistics() -> None:
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat1', 'sqlite_stat4')")
            for (name,) in cursor.fetchall():
                cursor.execute(f"DROP TABLE {name}")


class _Stored:
    """Facts that this process stored since it last had them counted."""

    def __init__(self) -> None:
        self.number = 0
        self.due = FEWEST  # from how many on the statistics are looked at next: a look takes three statements
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
    """Note that this transaction stores so many facts; once it is committed, run ANALYZE if that is due."""
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


# ---- Bulk writing and reading of the fact table, in the way that is fastest on each database ----------------------

# ---- Write rows to a table of PostgreSQL by COPY ------------------------------------------------------------------

KEY = ", ".join(("sig", *COLUMNS))
NAMES = f"{KEY}, since, expires_at"

_TABS = 1 + len(COLUMNS)
_LINE = "%d" + "\t%s" * len(COLUMNS) + "\t%d%.0s\n"  # the last value is an end, of which nothing is written


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
    """Return rows in COPY's text format, faster than the driver does; None if a row has an end, or needs escaping."""
    if any(row[-1] is not None for row in rows):
        return None
    text = "".join([_LINE % row for row in rows])
    is_plain = text.count("\t") == _TABS * len(rows) and text.count("\n") == len(rows)
    return text.encode() if is_plain and "\\" not in text and "\r" not in text else None


# ---- first load ---------------------------------------------------------------------------------------------------
# The first load of many facts into a PostgreSQL database: the indexes are dropped and built again at the end.
#
# Keeping an index up to date takes longer than inserting the row; building all of them at the end takes a third of
# the time. So the facts first go into a temporary table, and readers are not held up. Then, under an exclusive lock,
# the indexes of the empty table are dropped, the facts moved, and the same indexes built again. Others wait for that
# long: about 3 seconds for a million facts.
#
# If the table has ever had a row, or others hold a lock on it, or the database's role may not do this, the facts are
# moved with the indexes in place.

LEAST = 20_000  # facts: for fewer, nobody need wait
_TRIES, _BETWEEN = 20, 0.05  # to have the table alone; seconds between two
_LOCKED = "55P03"  # PostgreSQL's code for a lock that somebody else has
_UNTOUCHED = "pg_relation_size('fact') = 0"


class _NotAlone(Exception):
    """Others read or write the table, or have written to it."""


def is_due() -> bool:
    """Return whether the fact table is empty for every transaction; an older one may still see rows deleted since."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_UNTOUCHED} AND has_database_privilege(current_database(), 'TEMPORARY')")
        return bool(cursor.fetchone()[0])


class FirstLoad:
    """Takes rows, and moves them into the table of facts in the end. All of it is one transaction."""

    def __init__(self) -> None:
        self._taken = 0
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE waiting (LIKE fact) ON COMMIT DROP")

    def take(self, rows: Sequence[NewRow]) -> int:
        """Have them wait; none is inserted yet."""
        copy("waiting", rows)
        self._taken += len(rows)
        return 0

    def end(self, may_be_alone: bool) -> int:
        """Move all that wait; return how many there are, each once.

        Whoever has the table alone keeps it until the transaction ends, so that is for the end of a load.
        """
        try:
            moved = self._moved_alone() if may_be_alone and self._taken >= LEAST else None
        except OperationalError:
            raise  # cancelled, or the database is lost
        except (DatabaseError, _NotAlone):  # a fact that was said twice, a role that does not own the table
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
        with transaction.atomic():  # which also lets go of the table where this fails
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
                for name, definition in constraints:  # first: a fact that was said twice is found out by it
                    cursor.execute(f"ALTER TABLE fact ADD CONSTRAINT {name} {definition}")
                for _, definition in indexes:
                    cursor.execute(definition)
        return moved


# Names as statements write them; and what belongs to a constraint comes and goes with it.
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
    """Lock the table exclusively, trying with NOWAIT: a waiting lock request would block readers that come after it."""
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


# ---- Bulk writing and reading of the fact table, in the way that is fastest on each database ----------------------

AT_ONCE = 2_000  # rows that one call fetches
OF_FACT = 1_500  # bytes that a fact takes as JSON is made of it, beside its texts
RUN = 50_000  # rows that are sorted and inserted together on SQLite; longer runs are no quicker per row
TURN = 0.0005  # seconds after which one thread lets the other have the interpreter

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
        """End what is stored of these facts with another end, where they are to be stored."""
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
        """Yield the rows of one statement, and so of one snapshot, without a transaction that would hold writers up."""
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            while rows := cursor.fetchmany(AT_ONCE):
                yield from rows

    def fetched(self, statement: str, values: Sequence[int | str] = ()) -> list[Row]:
        """Return all rows of a statement, counted against the memory budget as they come."""
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return memory.fetched(cursor, OF_FACT)

    def lift_time_limit(self) -> None:
        """Switch the statement timeout off for the rest of the transaction: it is for questions, not for changes."""

    @contextmanager
    def expect_many(self) -> Iterator[None]:
        """Enlarge the page cache, so that a page that changes often is not written to disk each time."""
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA cache_size = -131072")
        yield
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA cache_size = -2000")  # the default: pages above it are let go after the commit

    def note_stored(self, number: int) -> None:
        """Do nothing: on SQLite, statements name their index, and no statistics are needed."""


_TEXTS = ", ".join(["%s::text[]"] * len(COLUMNS))
# Of PostgreSQL: inserts rows that are given as arrays, one for each column. A WHERE may follow.
INSERTING = f"INSERT INTO fact ({NAMES}) SELECT * FROM unnest(%s::integer[], {_TEXTS}, %s::bigint[], %s::bigint[])"


def columns_of(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows)]


class PostgresqlTable:
    def insert(self, rows: Sequence[NewRow]) -> int:
        return self._with_arrays(f"{INSERTING} ON CONFLICT DO NOTHING", rows)

    def loader(self) -> AbstractContextManager[Loader]:
        return loader_behind(self._load, FirstLoad() if is_due() else None)

    def _load(self, rows: Sequence[NewRow]) -> int:
        """Store rows by COPY. It fails on a fact that is stored already; then go by way of a temporary table."""
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
        """End what is stored of these facts with another end, where they are to be stored."""
        kept = f"({KEY}, until, expires_at)"
        arrays = f"unnest(%s::integer[], {_TEXTS}, %s::bigint[], %s::bigint[]) AS gone {kept}"
        condition = f"{_EQUAL} AND fact.expires_at IS DISTINCT FROM gone.expires_at"
        return self._with_arrays(_ended(f"DELETE FROM fact USING {arrays} WHERE {condition}", "gone.until"), rows)

    def end_all(self, condition: str, values: Sequence[int | str], until: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute(_ended(f"DELETE FROM fact WHERE {condition}", "%s::bigint"), (*values, until))
            return cursor.rowcount

    def stream(self, statement: str, values: Sequence[int | str] = ()) -> Iterator[Row]:
        """Yield the rows of one snapshot by a server-side cursor, without holding the result in memory."""
        with transaction.atomic():
            self.lift_time_limit()
            with connection.chunked_cursor() as cursor:
                cursor.execute(statement, values)
                while rows := cursor.fetchmany(AT_ONCE):
                    yield from rows

    def fetched(self, statement: str, values: Sequence[int | str] = ()) -> list[Row]:
        """Return all rows of a statement, counted against the memory budget as they come.

        `execute` would hold the whole answer in the driver before any of it could be counted.
        """
        driver: Any = connection.Database  # type: ignore[attr-defined]  # psycopg; servers on SQLite do without it
        size = memory.AT_ONCE if driver.capabilities.has_stream_chunked() else 1
        with (
            connection.wrap_database_errors, connection.cursor() as cursor,
            closing(cursor.cursor.stream(statement, values, size=size)) as rows,
        ):  # fmt: skip
            return memory.fetched(_Streamed(rows), OF_FACT)

    def lift_time_limit(self) -> None:
        """Switch the statement timeout off for the rest of the transaction: it is for questions, not for changes."""
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
    """Sort rows by signature and first id, so that rows next to each other go to the same page.

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
    """Wrap a DELETE of facts into a statement that inserts them into the past facts as well."""
    keys = ", ".join(f"fact.{name}" for name in ("sig", *COLUMNS))
    gone = f"WITH ended AS ({deleting} RETURNING {keys}, fact.since, {until} AS until, fact.expires_at)"
    return f"{gone} INSERT INTO past_fact ({KEY}, since, until, expires_at) SELECT * FROM ended"


_TABLES: dict[str, TableWriter] = {"sqlite": SqliteTable(), "postgresql": PostgresqlTable()}


def fact_table() -> TableWriter:
    """Return the table for the connected database."""
    return _TABLES[connection.vendor]


# ---- taking rows in, chunk by chunk ------------------------------------------------------------------------------


class Loader:
    """Stores chunks of rows as they come."""

    def __init__(self, store: Callable[[Sequence[NewRow]], int]):
        self._store = store
        self.inserted = 0

    def take(self, rows: Sequence[NewRow]) -> None:
        self.inserted += self._store(rows)

    def settle(self) -> None:
        """Wait until nothing is under way, so that the caller may use the connection."""

    def bring_in(self) -> None:
        """Settle, and store all rows taken so far in the fact table, so that later statements see them."""
        self.settle()


class _LoaderOfRuns(Loader):
    """Gathers chunks to sort more rows at once: then more neighbors go to the same page."""

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
    """Yield a loader for SQLite, which works within this process."""
    loader = _LoaderOfRuns(store)
    yield loader
    loader.settle()


class _LoaderBehind(Loader):
    """Stores a chunk while the next one is read."""

    def __init__(self, store: Callable[[Sequence[NewRow]], int], thread: Executor, first: FirstLoad | None):
        super().__init__(store)
        self._thread = thread
        self._first = first  # None once its rows are in the fact table
        self._under_way: Future[int] | None = None
        self._kept: deque[Sequence[NewRow]] = deque(maxlen=2)

    def take(self, rows: Sequence[NewRow]) -> None:
        tidy = list(rows) if self._first else sorted(set(rows))  # with no index, order is worth nothing
        # Freeing thousands of rows takes time. So they are freed here, while the database stores others, and not by the
        # thread that stores, between two chunks, when the database waits.
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

    Both use the same connection, by turns. A process may run one such load at a time.
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
