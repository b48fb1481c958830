"""The table of facts, written and read in bulk as each database does it fastest."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from django.db import DEFAULT_DB_ALIAS, IntegrityError, connection, connections, transaction

from facts.models import COLUMNS, Row
from facts.statistics import note_stored

TURN = 0.0005  # seconds that one thread may keep the other from the interpreter

_NAMES = ", ".join(("sig", *COLUMNS))
_EQUAL = " AND ".join(f"fact.{name} = gone.{name}" for name in ("sig", *COLUMNS))


class Table(Protocol):
    def insert(self, rows: Sequence[Row]) -> int: ...
    def loader(self) -> AbstractContextManager[Loader]: ...
    def delete(self, rows: Sequence[Row]) -> int: ...
    def stream(self, statement: str) -> Iterator[Row]: ...
    def lift_time_limit(self) -> None: ...
    def expect_many(self) -> None: ...
    def note_stored(self, number: int) -> None: ...


class SqliteTable:
    def insert(self, rows: Sequence[Row]) -> int:
        with connection.cursor() as cursor:
            # In key order, neighbours land on the same page.
            cursor.executemany("INSERT INTO fact VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING", sorted(rows))
            return cursor.rowcount

    def loader(self) -> AbstractContextManager[Loader]:
        return nullcontext(Loader(self.insert))

    def delete(self, rows: Sequence[Row]) -> int:
        condition = " AND ".join(f"{name} = %s" for name in ("sig", *COLUMNS))
        with connection.cursor() as cursor:
            cursor.executemany(f"DELETE FROM fact WHERE {condition}", rows)
            return cursor.rowcount

    def stream(self, statement: str) -> Iterator[Row]:
        """Row by row, as of one moment; outside of any transaction, which would hold writers up."""
        with connection.cursor() as cursor:
            cursor.execute(statement)
            yield from iter(cursor.fetchone, None)

    def lift_time_limit(self) -> None:
        """There is none."""

    def expect_many(self) -> None:
        """Pages that change stay in memory until they are full, instead of being written again and again."""
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA cache_size = -131072")

    def note_stored(self, number: int) -> None:
        """Statements say which index to use."""


class PostgresqlTable:
    _ARRAYS = "unnest(%s::integer[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])"

    def insert(self, rows: Sequence[Row]) -> int:
        return self._with_arrays(f"INSERT INTO fact SELECT * FROM {self._ARRAYS} ON CONFLICT DO NOTHING", rows)

    def loader(self) -> AbstractContextManager[Loader]:
        return loader_behind(self._load)

    def _load(self, rows: Sequence[Row]) -> int:
        """By COPY, which knows no conflicts: where there is one, by way of a table of this transaction."""
        try:
            with transaction.atomic():
                self._copy("fact", rows)
            return len(rows)
        except IntegrityError:
            return self._load_around_conflicts(rows)

    def _load_around_conflicts(self, rows: Sequence[Row]) -> int:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE IF NOT EXISTS incoming (LIKE fact) ON COMMIT DROP")
            self._copy("incoming", rows)
            cursor.execute("INSERT INTO fact SELECT * FROM incoming ON CONFLICT DO NOTHING")
            inserted = cursor.rowcount
            cursor.execute("TRUNCATE incoming")
        return inserted

    def _copy(self, table: str, rows: Sequence[Row]) -> None:
        statement = f"COPY {table} ({_NAMES}) FROM STDIN"
        with connection.wrap_database_errors, connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def delete(self, rows: Sequence[Row]) -> int:
        return self._with_arrays(f"DELETE FROM fact USING {self._ARRAYS} AS gone ({_NAMES}) WHERE {_EQUAL}", rows)

    def stream(self, statement: str) -> Iterator[Row]:
        """Row by row, as of one moment, without holding the result in memory."""
        with transaction.atomic():
            self.lift_time_limit()
            with connection.chunked_cursor() as cursor:
                cursor.execute(statement)
                yield from cursor

    def lift_time_limit(self) -> None:
        """For the rest of the transaction: a question that takes long is refused, a change that takes long is done."""
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")

    def expect_many(self) -> None:
        self.lift_time_limit()

    def note_stored(self, number: int) -> None:
        note_stored(number)

    def _with_arrays(self, statement: str, rows: Sequence[Row]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement, [list(column) for column in zip(*rows)])
            return cursor.rowcount


_TABLES: dict[str, Table] = {"sqlite": SqliteTable(), "postgresql": PostgresqlTable()}


def fact_table() -> Table:
    """The table in the database that is connected."""
    return _TABLES[connection.vendor]


# ---- taking rows in, chunk by chunk ------------------------------------------------------------------------------


class Loader:
    """Stores chunks of rows as they come."""

    def __init__(self, store: Callable[[Sequence[Row]], int]):
        self._store = store
        self.inserted = 0

    def take(self, rows: Sequence[Row]) -> None:
        self.inserted += self._store(rows)

    def settle(self) -> None:
        """Nothing is under way after this, and the connection is free."""


class _LoaderBehind(Loader):
    """Stores a chunk while the next one is read."""

    def __init__(self, store: Callable[[Sequence[Row]], int], thread: Executor):
        super().__init__(store)
        self._thread = thread
        self._under_way: Future[int] | None = None
        self._kept: deque[Sequence[Row]] = deque(maxlen=2)

    def take(self, rows: Sequence[Row]) -> None:
        tidy = sorted(set(rows))
        # Thousands of rows take their time to be let go of: here, while the database has others to store. The thread
        # that stores would do so between two chunks, when the database waits.
        self._kept.append(tidy)
        self.settle()
        self._under_way = self._thread.submit(self._store, tidy)

    def settle(self) -> None:
        if self._under_way is not None:
            stored, self._under_way = self._under_way, None
            self.inserted += stored.result()


@contextmanager
def loader_behind(store: Callable[[Sequence[Row]], int]) -> Iterator[Loader]:
    """For databases in a process of their own. Two threads have the connection, by turns; one load in a process."""
    mine = connections[DEFAULT_DB_ALIAS]
    mine.inc_thread_sharing()
    usual_turn = sys.getswitchinterval()
    sys.setswitchinterval(TURN)  # while the thread that stores waits for its turn, so does the database
    try:
        with ThreadPoolExecutor(1, initializer=connections.__setitem__, initargs=(DEFAULT_DB_ALIAS, mine)) as thread:
            loader = _LoaderBehind(store, thread)
            yield loader
            loader.settle()
    finally:
        sys.setswitchinterval(usual_turn)
        mine.dec_thread_sharing()
