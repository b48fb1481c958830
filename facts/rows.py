"""Rows of the fact table, in bulk, as each database takes them fastest."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from django.db import IntegrityError, connection, transaction

from facts.bundles import Row
from facts.loaders import Loader, loader_behind
from facts.models import COLUMNS
from facts.statistics import note_stored

_NAMES = ", ".join(("sig", *COLUMNS))
_EQUAL = " AND ".join(f"fact.{name} = gone.{name}" for name in ("sig", *COLUMNS))


class Rows(Protocol):
    def insert(self, rows: Sequence[Row]) -> int: ...
    def loader(self) -> AbstractContextManager[Loader]: ...
    def delete(self, rows: Sequence[Row]) -> int: ...
    def stream(self, statement: str) -> Iterator[Row]: ...
    def lift_time_limit(self) -> None: ...
    def expect_many(self) -> None: ...
    def note_stored(self, number: int) -> None: ...


class SqliteRows:
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


class PostgresqlRows:
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


_ROWS: dict[str, Rows] = {"sqlite": SqliteRows(), "postgresql": PostgresqlRows()}


def rows_here() -> Rows:
    """The way of the database that is connected."""
    return _ROWS[connection.vendor]
