"""Rows as they are in a database: one reader for each kind, all of the same form.

A reader is a generator: it opens a connection that can only read, yields rows while it holds only a part of them in
memory, and closes the connection. Values are texts, as the database shows them and as local SQL compares them, or None.
"""

from __future__ import annotations

from collections.abc import Generator

from localsql.sync.config import DatabaseKind, SyncPattern
from localsql.sync.sources import csv_files, mongodb, mysql, postgresql, sqlite
from localsql.sync.sources.row import SourceRow

_READERS = {
    DatabaseKind.POSTGRES: postgresql.rows,
    DatabaseKind.MYSQL: mysql.rows,
    DatabaseKind.SQLITE: sqlite.rows,
    DatabaseKind.MONGODB: mongodb.rows,
    DatabaseKind.CSV: csv_files.rows,
}
_SORTING = (DatabaseKind.POSTGRES, DatabaseKind.MYSQL, DatabaseKind.SQLITE)


def can_sort(pattern: SyncPattern) -> bool:
    """Say whether the database itself can put its rows into our order."""
    return pattern.database.kind in _SORTING


def rows_of(pattern: SyncPattern, in_order: bool) -> Generator[SourceRow, None, None]:
    """Yield the pattern's rows. Closing the generator closes its connection."""
    yield from _READERS[pattern.database.kind](pattern, in_order)
