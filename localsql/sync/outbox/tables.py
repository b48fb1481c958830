"""An outbox in the application's database: what stands in it, and what is taken out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from localsql.sync.config import Kind, Outbox
from localsql.sync.errors import SourceFailed
from localsql.sync.sources import mysql, postgresql, sqlite

Execute = Callable[[str, Sequence[int]], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Written:
    """A row of an outbox."""

    number: int
    changes: str

    @property
    def digest(self) -> str:
        """With the number, what tells it from any other, even where numbers are given again."""
        return sha256(self.changes.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Table:
    """In a connection, each statement in a transaction of its own. The name is a plain one, of the file."""

    _name: str
    _text: str  # the type that shows JSON as text
    _mark: str
    _execute: Execute

    def first(self, most: int) -> list[Written]:
        """Those with the lowest numbers of all that are committed."""
        return self._rows(f"ORDER BY id LIMIT {int(most)}", ())

    def with_numbers(self, numbers: Sequence[int]) -> list[Written]:
        return self._rows(f"WHERE id IN ({self._marks(numbers)})", numbers) if numbers else []

    def remove(self, numbers: Sequence[int]) -> None:
        if numbers:
            self._execute(f"DELETE FROM {self._name} WHERE id IN ({self._marks(numbers)})", numbers)

    def _rows(self, which: str, values: Sequence[int]) -> list[Written]:
        found = self._execute(f"SELECT id, CAST(changes AS {self._text}) FROM {self._name} {which}", values)
        return [Written(int(number), _shown(changes)) for number, changes in found]

    def _marks(self, numbers: Sequence[int]) -> str:
        return ", ".join([self._mark] * len(numbers))


def _shown(changes: str | bytes | None) -> str:
    return changes.decode() if isinstance(changes, bytes) else changes or ""


@contextmanager
def opened(outbox: Outbox) -> Iterator[Table]:
    kind = outbox.database.kind
    with _OPENED[kind](outbox) as table:
        yield table


@contextmanager
def _postgresql(outbox: Outbox) -> Iterator[Table]:
    database = outbox.database
    module = postgresql.psycopg(database)
    with postgresql.connected(database, reads_only=False) as connection:
        connection.autocommit = True

        def execute(statement: str, values: Sequence[int]) -> list[tuple[Any, ...]]:
            try:
                cursor = connection.execute(statement.encode(), values)
                return cursor.fetchall() if cursor.description else []
            except module.Error as error:
                raise postgresql.failed(database, error) from None

        yield Table(outbox.table, "text", "%s", execute)


@contextmanager
def _mysql(outbox: Outbox) -> Iterator[Table]:
    database = outbox.database
    module, connection = mysql.pymysql(database), mysql.connected(database, "Cursor")
    connection.autocommit(True)

    def execute(statement: str, values: Sequence[int]) -> list[tuple[Any, ...]]:
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, tuple(values))
                return list(cursor.fetchall())
        except (module.MySQLError, OSError) as error:
            raise mysql.failed(database, error) from None

    try:
        yield Table(outbox.table, "CHAR", "%s", execute)
    finally:
        connection._force_close()


@contextmanager
def _sqlite(outbox: Outbox) -> Iterator[Table]:
    connection = sqlite.connected(outbox.database, "rw")

    def execute(statement: str, values: Sequence[int]) -> list[tuple[Any, ...]]:
        try:
            return connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise SourceFailed(outbox.database.name, str(error)) from None

    try:
        yield Table(outbox.table, "TEXT", "?", execute)
    finally:
        connection.close()


_OPENED = {Kind.POSTGRES: _postgresql, Kind.MYSQL: _mysql, Kind.SQLITE: _sqlite}
