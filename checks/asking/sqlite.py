"""Runs statements on SQLite, with a look at the clock now and then."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from threading import Lock
from time import monotonic, sleep

from checks.asking.deadline import Deadline
from checks.errors import QueryTooSlow, StatementTooLarge

_LONG = 0.1  # seconds from which on a statement has to share with others that take long
_TURN = 0.05  # seconds that it then runs before it lets others
_PAUSE = 0.002  # seconds in which they begin
_turn = Lock()  # of this process
_STEPS = 20_000  # of SQLite's machine between two looks at the clock: about a millisecond
# Of what nests too deep in a WITH, SQLite forgets the outer tables, which are the statement's own.
_FORGOTTEN = r"no such table: (?:inline_fact|(?:[qr]\d+)*[agrw]\d+)$"
_TOO_LARGE = re.compile(rf"too many|too large|at most \d+ tables|parser stack overflow|limit .*exceeded|{_FORGOTTEN}")


def execute(raw: sqlite3.Connection, sql: str, values: list[object], time: Deadline) -> list[tuple]:
    if time.left() == inf:
        return raw.execute(sql, values).fetchall()
    clock = _Clock(time)
    raw.set_progress_handler(clock.is_over, _STEPS)
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
        clock.end_turn()


class _Clock:
    """What is looked at now and then. Of statements that take long, one of a process runs at a time, by turns.

    So they take no more of the processors than one question may, however many there are.
    """

    __slots__ = ("_began", "_has_turn", "_time")

    def __init__(self, time: Deadline):
        self._time, self._began, self._has_turn = time, monotonic(), False

    def is_over(self) -> bool:
        if self._time.is_over():
            return True
        if monotonic() - self._began < (_TURN if self._has_turn else _LONG):
            return False
        self.end_turn()
        sleep(_PAUSE)
        while not _turn.acquire(timeout=_PAUSE):
            if self._time.is_over():
                return True
        self._has_turn, self._began = True, monotonic()
        return False

    def end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            _turn.release()


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
