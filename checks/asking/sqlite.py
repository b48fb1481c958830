"""Runs statements on SQLite, with a look at the clock now and then."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep

from checks.asking.deadline import Deadline
from checks.asking.turns import LONG, Turn, known, turns
from checks.errors import QueryTooSlow, StatementTooLarge
from policy import places

_TURN = 0.5  # seconds that a statement runs before it lets others that take long run
_ASIDE = 0.000_001  # seconds that one which takes long sleeps at each look; it comes to some 60 µs
_STEPS = 20_000  # of SQLite's machine between two looks at the clock: about a millisecond
# Of what nests too deep in a WITH, SQLite forgets the outer tables, which are the statement's own.
_FORGOTTEN = r"no such table: (?:inline_fact|(?:[qr]\d+)*[agrw]\d+)$"
_TOO_LARGE = re.compile(rf"too many|too large|at most \d+ tables|parser stack overflow|limit .*exceeded|{_FORGOTTEN}")


def execute(raw: sqlite3.Connection, sql: str, values: list[object], time: Deadline) -> list[tuple]:
    time.left()  # or none: it raises
    clock = _Clock(time, sql, values)
    raw.set_progress_handler(clock.is_over, _STEPS)
    try:
        return raw.execute(sql, values).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise clock.refusal from None
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR and _TOO_LARGE.search(str(error)):
            raise StatementTooLarge from None
        raise
    finally:
        raw.set_progress_handler(None, 0)
        clock.end()


def glance(raw: sqlite3.Connection, sql: str, value: str) -> tuple | None:
    """Return the one row; None where there is none, or something is wrong: `execute` says what."""
    rows: list[tuple] = []
    with suppress(sqlite3.Error):
        rows = raw.execute(sql, (value,)).fetchall()
    return rows[0] if rows else None


class _Clock:
    """What is looked at now and then. Statements that take long run by turns; one that is known to, from the start."""

    __slots__ = ("_asked", "_free_until", "_has_place", "_is_known", "_refusal", "_time", "_turn")

    def __init__(self, time: Deadline, sql: str, values: list[object]):
        self._time, self._asked = time, (sql, values)
        self._is_known = known.times(sql, values) > 0
        self._free_until = 0.0 if self._is_known else monotonic() + LONG
        self._turn: Turn | None = None
        self._has_place = True
        self._refusal: BaseException | None = None

    @property
    def refusal(self) -> BaseException:
        """Why the statement was ended."""
        return self._refusal or QueryTooSlow(self._time.seconds)

    def is_over(self) -> bool:
        """Say whether the statement is to end; where it has to wait for its turn, once that has come."""
        try:
            self._go_on()
        except BaseException as refusal:  # SQLite's caller would not see it
            self._refusal = refusal
        return self._refusal is not None

    def end(self) -> None:
        if self._turn:
            self._turn.end()
        elif self._is_known and not self._refusal:
            known.forget(*self._asked)

    def _go_on(self) -> None:
        """Let others have what they need, or raise that the time is over."""
        if self._time.is_over():
            raise self._turn.refusal if self._turn else QueryTooSlow(self._time.seconds)
        if self._has_place:
            self._has_place = False
            places.give_up()
        if turns.count and monotonic() >= self._free_until:
            self._take_turn()
        elif self._turn:
            # The system would let others wait behind it for milliseconds, though another processor may be idle. Who
            # sleeps lets them go on, and is given a processor that has nothing to do.
            sleep(_ASIDE)

    def _take_turn(self) -> None:
        if not self._is_known:
            self._is_known = True
            known.note(*self._asked, times=1)
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
