"""An outbox in the application's database: reads its rows, and takes them out."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from localsql.sync.config import Kind, Outbox
from localsql.sync.errors import SourceFailed
from localsql.sync.outbox import identities
from localsql.sync.outbox.identities import Values
from localsql.sync.sources import mysql, postgresql, sqlite

_POSTGRESQL_DIGEST = "encode(sha256(convert_to(COALESCE(CAST(changes AS text), ''), 'UTF8')), 'hex')"
_MYSQL_DIGEST = "SHA2(CONVERT(COALESCE(CAST(changes AS CHAR), '') USING utf8mb4), 256)"


@dataclass(frozen=True, slots=True)
class Written:
    """A row of an outbox."""

    number: int
    changes: str

    @property
    def digest(self) -> str:
        """The digest of what the row says. With the number, it identifies the row, even if numbers are reused."""
        return sha256(self.changes.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Table:
    """An outbox in an open connection; each statement is a transaction. The file's reader has checked the name."""

    _name: str
    _text: str  # the type that shows JSON as text
    _mark: str
    _execute: identities.Execute
    _database: str  # its name
    identity: str  # what the server says that this table is, however a file spells it
    _digest: str = ""  # what a row's digest is in SQL, if the database can say

    def first(self, most: int) -> list[Written]:
        """Return so many of the committed rows, those with the lowest numbers."""
        return self._rows(f"ORDER BY id LIMIT {int(most)}", ())

    def remove(self, rows: Mapping[int, str]) -> None:
        """Delete those of the rows that still have these digests."""
        if not rows:
            return
        if self._digest:
            each = f"id = {self._mark} AND {self._digest} = {self._mark}"
            condition = " OR ".join([f"({each})"] * len(rows))
            values = [value for row in rows.items() for value in row]
            self._execute(f"DELETE FROM {self._name} WHERE {condition}", values)
            left = self._as_read(rows)
        else:
            left = self._removed_by_a_writer(rows)
        if left:
            raise SourceFailed(self._database, f"the row {left[0]} of the outbox cannot be taken out")

    def _removed_by_a_writer(self, rows: Mapping[int, str]) -> list[int]:
        """Delete the rows where digests are computed here, under SQLite's write lock: no row changes after it is read.

        Return the numbers of those that are still there.
        """
        self._execute("BEGIN IMMEDIATE", ())
        try:
            numbers = self._as_read(rows)
            if numbers:
                self._execute(f"DELETE FROM {self._name} WHERE id IN ({self._marks(numbers)})", numbers)
            left = self._as_read(rows)
        except BaseException:
            self._execute("ROLLBACK", ())
            raise
        self._execute("COMMIT", ())
        return left

    def _as_read(self, rows: Mapping[int, str]) -> list[int]:
        there = self._rows(f"WHERE id IN ({self._marks(rows)})", list(rows))
        return [row.number for row in there if rows[row.number] == row.digest]

    def _rows(self, which: str, values: Values) -> list[Written]:
        found = self._execute(f"SELECT id, CAST(changes AS {self._text}) FROM {self._name} {which}", values)
        return [Written(int(number), _shown(changes)) for number, changes in found]

    def _marks(self, numbers: Collection[int]) -> str:
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

        def execute(statement: str, values: Values) -> list[tuple[Any, ...]]:
            try:
                cursor = connection.execute(statement.encode(), values)
                return cursor.fetchall() if cursor.description else []
            except module.Error as error:
                raise postgresql.failed(database, error) from None

        identity = identities.of_postgresql(outbox, execute)
        yield Table(outbox.table, "text", "%s", execute, database.name, identity, _POSTGRESQL_DIGEST)


@contextmanager
def _mysql(outbox: Outbox) -> Iterator[Table]:
    database = outbox.database
    module, connection = mysql.pymysql(database), mysql.connected(database, "Cursor")
    connection.autocommit(True)

    def execute(statement: str, values: Values) -> list[tuple[Any, ...]]:
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, tuple(values))
                return list(cursor.fetchall())
        except (module.MySQLError, OSError) as error:
            raise mysql.failed(database, error) from None

    try:
        identity = identities.of_mysql(outbox, execute)
        yield Table(outbox.table, "CHAR", "%s", execute, database.name, identity, _MYSQL_DIGEST)
    finally:
        connection._force_close()


@contextmanager
def _sqlite(outbox: Outbox) -> Iterator[Table]:
    connection = sqlite.connected(outbox.database, "rw")

    def execute(statement: str, values: Values) -> list[tuple[Any, ...]]:
        try:
            return connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise SourceFailed(outbox.database.name, str(error)) from None

    try:
        yield Table(outbox.table, "TEXT", "?", execute, outbox.database.name, identities.of_sqlite(outbox))
    finally:
        connection.close()


_OPENED = {Kind.POSTGRES: _postgresql, Kind.MYSQL: _mysql, Kind.SQLITE: _sqlite}
