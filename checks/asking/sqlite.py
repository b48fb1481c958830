"""Runs statements on SQLite, with a look at the clock now and then."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf

from checks.asking.deadline import Deadline
from checks.errors import QueryTooSlow, StatementTooLarge

_STEPS = 20_000  # of SQLite's machine between two looks at the clock: about a millisecond
# Of what nests too deep in a WITH, SQLite forgets the outer tables, which are the statement's own.
_FORGOTTEN = r"no such table: (?:inline_fact|(?:[qr]\d+)*[agrw]\d+)$"
_TOO_LARGE = re.compile(rf"too many|too large|at most \d+ tables|parser stack overflow|limit .*exceeded|{_FORGOTTEN}")


def execute(raw: sqlite3.Connection, sql: str, values: list[object], time: Deadline) -> list[tuple]:
    if time.left() == inf:
        return raw.execute(sql, values).fetchall()
    raw.set_progress_handler(time.is_over, _STEPS)
    try:
        return raw.execute(sql, values).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise QueryTooSlow(time.seconds) from None
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR and _TOO_LARGE.search(str(error)):
            raise StatementTooLarge from None
        raise
    finally:
        raw.set_progress_handler(None, 0)


@contextmanager
def snapshot(raw: sqlite3.Connection) -> Iterator[None]:
    raw.execute("BEGIN")
    try:
        yield
    finally:
        with suppress(sqlite3.Error):  # a connection that is lost has no transaction to end
            raw.execute("ROLLBACK")


@contextmanager
def limited(raw: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Do nothing: the clock that is looked at is the question's."""
    yield


def in_transaction(raw: sqlite3.Connection) -> bool:
    return raw.in_transaction
