"""Runs statements on SQLite, with a look at the clock now and then."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from time import monotonic

from checks.asking.deadline import Deadline
from checks.asking.turns import LONG, Turn, known, turns
from checks.errors import Crowded, QueryTooSlow, StatementTooLarge
from policy import places

_TURN = 0.5  # seconds that a statement runs before it lets others that take long run
_STEPS = 20_000  # of SQLite's machine between two looks at the clock: about a millisecond
# Of what nests too deep in a WITH, SQLite forgets the outer tables, which are the statement's own.
_FORGOTTEN = r"no such table: (?:inline_fact|(?:[qr]\d+)*[agrw]\d+)$"
_TOO_LARGE = re.compile(rf"too many|too large|at most \d+ tables|parser stack overflow|limit .*exceeded|{_FORGOTTEN}")


def execute(raw: sqlite3.Connection, sql: str, values: list[object], time: Deadline) -> list[tuple]:
    if time.left() == inf:
        return raw.execute(sql, values).fetchall()
    clock = _Clock(time, sql)
    raw.set_progress_handler(clock.is_over, _STEPS)
    try:
        return raw.execute(sql, values).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise clock.refusal or QueryTooSlow(time.seconds) from None
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR and _TOO_LARGE.search(str(error)):
            raise StatementTooLarge from None
        raise
    finally:
        raw.set_progress_handler(None, 0)
        clock.end()


class _Clock:
    """What is looked at now and then. Statements that take long run by turns; one that is known to, from the start."""

    __slots__ = ("_free_until", "_has_place", "_is_known", "_sql", "_time", "_turn", "refusal")

    def __init__(self, time: Deadline, sql: str):
        self._time, self._sql = time, sql
        self._is_known = sql in known
        self._free_until = 0.0 if self._is_known else monotonic() + LONG
        self._turn: Turn | None = None
        self._has_place = True
        self.refusal: Crowded | None = None

    def is_over(self) -> bool:
        """Say whether the statement is to end; where it has to wait for its turn, once that has come."""
        if self._time.is_over():
            return True
        if self._has_place:
            self._has_place = False
            places.give_up()
        if turns.count and monotonic() >= self._free_until:
            try:
                self._take_turn()
            except Crowded as refusal:
                self.refusal = refusal
                return True
        return False

    def end(self) -> None:
        if self._turn:
            self._turn.end()
        elif self._is_known and not self.refusal:
            known.discard(self._sql)

    def _take_turn(self) -> None:
        if not self._is_known:
            self._is_known = True
            known.add(self._sql)
        if self._turn:
            self._turn.pass_on()
        else:
            self._turn = Turn(turns, self._time)
        self._free_until = monotonic() + _TURN


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
