"""Run statements on SQLite, checking their time and memory at intervals.

What a statement sorts and materialises stays in memory, and counts against the budget (`policy/ground/memory.py`).
Temporary files could fill the disk, and then no change could be stored.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, sleep

from checks.asking.deadline import Deadline
from checks.asking.turns import LONG, Turn, known, turns
from checks.errors import QueryTooSlow, StatementTooLarge
from policy.ground import memory, waking
from policy.ground.memory import budget

_TURN = 0.5  # seconds that a slow statement runs before it yields to other slow ones
_ASIDE = 0.000_001  # seconds that a slow statement sleeps at each check of the clock; about 60 µs in practice
_STEPS = 20_000  # of SQLite's virtual machine between checks of the clock: about a millisecond
# If WITH clauses nest too deep, SQLite does not find the outer tables that the statement itself defines.
_FORGOTTEN = r"no such table: (?:inline_fact|(?:[qr]\d+)*[agrw]\d+)$"
_TOO_LARGE = re.compile(rf"too many|too large|at most \d+ tables|parser stack overflow|limit .*exceeded|{_FORGOTTEN}")


def execute(raw: sqlite3.Connection, sql: str, values: Sequence[object], time: Deadline) -> list[tuple]:
    time.left()  # raises if none is left
    clock = _Clock(time, sql, values)
    cursor = None
    raw.set_progress_handler(clock.is_over, _STEPS)
    try:
        cursor = raw.execute(sql, values)
        return memory.fetched(cursor)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise clock.refusal from None
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR and _TOO_LARGE.search(str(error)):
            raise StatementTooLarge from None
        raise
    finally:
        raw.set_progress_handler(None, 0)
        if cursor is not None:
            cursor.close()
        clock.end(raw)


def glance(raw: sqlite3.Connection, sql: str, value: str) -> tuple | None:
    """Return the single row, or None."""
    rows = raw.execute(sql, (value,)).fetchall()
    return rows[0] if rows else None


class _Clock:
    """The progress handler of a statement. A slow one needs a turn: from the start if it is known to be slow."""

    _turn: Turn | None = None
    _has_slot = True
    _refusal: BaseException | None = None
    _holding: memory.Holding | None = None  # from the first check on

    def __init__(self, time: Deadline, sql: str, values: Sequence[object]):
        self._time, self._asked = time, (sql, values)
        self._is_known = known.times(sql, values) > 0
        self._free_until = 0.0 if self._is_known else monotonic() + LONG

    @property
    def refusal(self) -> BaseException:
        """Return the error that ended the statement."""
        return self._refusal or QueryTooSlow(self._time.seconds)

    def is_over(self) -> bool:
        """Return whether SQLite has to end the statement. If it needs a turn, wait for that first."""
        try:
            self._go_on()
        except BaseException as refusal:  # SQLite would swallow an exception raised in here
            self._refusal = refusal
        return self._refusal is not None

    def end(self, raw: sqlite3.Connection) -> None:
        if self._holding is not None and budget.end_statement(self._holding) >= memory.LARGE:
            with suppress(sqlite3.Error):
                raw.execute("PRAGMA shrink_memory")
        if self._turn:
            self._turn.end()
        elif self._is_known and not self._refusal:
            known.forget(*self._asked)
        self._refusal = None  # its traceback keeps this object and all fetched rows alive

    def _go_on(self) -> None:
        """Yield to other threads as needed; raise if the time is over."""
        if self._time.is_over():
            raise self._turn.refusal if self._turn else QueryTooSlow(self._time.seconds)
        if (holding := self._holding or memory.holding()) is not None:
            self._holding = holding
            budget.look(holding)
        if self._has_slot:
            self._has_slot = False
            waking.give_up_slot()
        if turns.count and monotonic() >= self._free_until:
            self._take_turn()
        elif self._turn:
            # The operating system might keep others waiting behind this thread for milliseconds, though another
            # processor is idle. A thread that sleeps lets them run, and wakes up on an idle processor.
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
        with suppress(sqlite3.Error):  # a lost connection has no transaction to end
            raw.execute("ROLLBACK")


@contextmanager
def limited(raw: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Do nothing: the progress handler checks the deadline, which the caller has shortened."""
    yield


def limit(raw: sqlite3.Connection, seconds: float) -> None:
    """Do nothing, like `limited`."""


def in_transaction(raw: sqlite3.Connection) -> bool:
    return raw.in_transaction
