"""Rows out of an SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from operator import methodcaller
from pathlib import Path
from urllib.parse import quote

from localsql.sync.config import Database, SourceFailed, SyncPattern
from localsql.sync.sources.row import AT_ONCE, CONNECT_WITHIN, SourceRow, reading

_text = methodcaller("decode", "utf-8", "surrogateescape")  # runs for each value, so it is no Python function


def connected(database: Database, mode: str = "ro") -> sqlite3.Connection:
    path = path_of(database)
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=CONNECT_WITHIN, isolation_level=None
        )
        connection.text_factory = _text
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.Error as error:
        raise SourceFailed(database.name, f"the file `{path}` cannot be opened: {error}") from None
    return connection


def path_of(database: Database) -> Path:
    """Return the file. As in DATABASE_URL, a path after `sqlite:///` is relative, and absolute with one more slash."""
    written = database.connection
    for beginning in ("sqlite:///", "sqlite://", "sqlite:"):
        if written.startswith(beginning):
            return database.folder / written.removeprefix(beginning)
    return database.folder / written


def rows(pattern: SyncPattern, in_order: bool) -> Iterator[SourceRow]:
    database = pattern.database
    statement = reading(pattern, database.sql_dialect, in_order)
    with closing(connected(database)) as connection:
        try:
            cursor = connection.execute(statement)
            while fetched := cursor.fetchmany(AT_ONCE):
                yield from fetched
        except sqlite3.Error as error:
            raise SourceFailed(database.name, str(error)) from None
