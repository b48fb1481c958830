"""Limits of questions: a deadline for all work on one, and turns for slow statements.

Code that answers a question opens a `Deadline`. Code that runs inside of it calls `check` wherever policies and facts
determine how long it takes.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from itertools import islice
from math import inf
from threading import Lock, RLock
from time import monotonic, sleep, thread_time

from checks.errors import QueryTooSlow, TooManySlowQueries
from policy.core import memory
from policy.core.config import settings

# ---- deadlines ----------------------------------------------------------------------------------------------------
# One time limit for all work on a question, from reading the policy to the answer.


def planning_timeout() -> float:
    """Return how many seconds of CPU time the planning of a request may take; 0 is no limit."""
    return float(settings.STATEMENT_TIMEOUT) / 5


_opened: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


class Deadline:
    """A limit of `seconds` from now; 0 is none. Opening it within another one has no effect."""

    __slots__ = ("_token", "end", "processor_end", "seconds")

    def __init__(self, seconds: float, processor: float = inf):
        self.seconds = seconds
        self.end = monotonic() + seconds if seconds > 0 else inf
        # CPU time of the thread that opens it. Reading that takes a system call, so it is avoided where possible.
        self.processor_end = inf if processor == inf else thread_time() + processor
        self._token: Token[Deadline | None] | None = None

    def __enter__(self) -> None:
        if _opened.get() is None:
            self._token = _opened.set(self)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._token is not None:
            _opened.reset(self._token)

    def is_over(self) -> bool:
        return monotonic() >= self.end or (self.processor_end < inf and thread_time() >= self.processor_end)

    def left(self) -> float:
        """Return the seconds left; raise `QueryTooSlow` if there are none."""
        left = self.end - monotonic()
        if left <= 0:
            raise QueryTooSlow(self.seconds)
        return left


@contextmanager
def shortened(seconds: float, processor: float = inf) -> Iterator[None]:
    """Limit the code inside to `seconds`, or to what the open deadline has left if that is less.

    `processor` limits this thread's CPU time, including that of statements which run in this thread.
    """
    mine, outer = Deadline(seconds, processor), _opened.get()
    if outer is not None and outer.end < mine.end:
        mine.end, mine.seconds = outer.end, outer.seconds
    token = _opened.set(mine)
    try:
        yield
    finally:
        _opened.reset(token)


def current() -> Deadline | None:
    return _opened.get()


def check() -> None:
    """Raise `QueryTooSlow` if the question's deadline has passed."""
    found = _opened.get()
    if found is not None and monotonic() >= found.end:
        raise QueryTooSlow(found.seconds)


class DeadlineLock:
    """A reentrant lock. Waiting for it raises `QueryTooSlow` at the question's deadline."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        found = _opened.get()
        if found is None or found.end == inf:
            self._lock.acquire()
        elif not self._lock.acquire(timeout=found.left()):
            raise QueryTooSlow(found.seconds)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._lock.release()


# ---- turns --------------------------------------------------------------------------------------------------------
# A worker limit for slow statements, which keeps one processor free for all others.
#
# While all processors are busy, a thread that needs one briefly waits for milliseconds: ten times as long as most
# questions take. So only so many slow statements run at a time (`run.at_once`), in all processes of a server together;
# the others wait for a turn. If too many wait here, and the oldest has waited for long, the next one fails with
# `TooManySlowQueries`, so that threads are left for fast questions.

LONG = 0.1  # seconds; a statement that takes longer is slow
_LOOK = 0.01  # seconds between checks for a free turn
_MOST = 1000  # maximum number of known slow statements


class SlowStatementLimit:
    """At most `count` turns at a time, in this process or, after `share`, in those that it forks; 0 is no limit."""

    def __init__(self, count: int):
        self.count = count
        self.most_here = sys.maxsize  # statements of this process that may have or wait for a turn
        self._here: dict[SlowStatementTurn, float] = {}  # arrival times, the oldest first
        self._counting = Lock()
        self._mine = [Lock() for _ in range(count)]  # one per turn: file locks only exclude other processes
        self._file: int | None = None  # each turn is a lock on one of its bytes

    def share(self) -> None:
        """Share the turns with processes that are forked from now on, where the system allows it."""
        if self.count and hasattr(os, "memfd_create"):
            self._file = os.memfd_create("turns")

    @contextmanager
    def one(self, time: Deadline) -> Iterator[SlowStatementTurn]:
        """Wait for a turn, and hold it while the code inside runs."""
        turn = SlowStatementTurn(self, time)
        try:
            yield turn
        finally:
            turn.end()

    def enter(self, turn: SlowStatementTurn) -> None:
        with self._counting:
            self._here[turn] = monotonic()

    def leave(self, turn: SlowStatementTurn) -> None:
        with self._counting:
            del self._here[turn]

    def has_place_for(self, turn: SlowStatementTurn) -> bool:
        """Return whether the turn is among the oldest `most_here`. If not, and the oldest is slow, raise an error.

        If even the oldest has just come, the machine may have stalled, which makes all statements look slow. The crowd
        is soon gone then, so the turn waits.
        """
        with self._counting:
            if turn in islice(self._here, self.most_here):
                return True
            if monotonic() - next(iter(self._here.values())) > LONG:
                raise TooManySlowQueries
        return False

    def take(self) -> int | None:
        """Take a free turn and return its number; None if none is free."""
        return next((number for number in range(self.count) if self._takes(number)), None)

    def give_back(self, number: int) -> None:
        try:
            if self._file is not None:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)
        finally:
            self._mine[number].release()

    def _takes(self, number: int) -> bool:
        if not self._mine[number].acquire(blocking=False):
            return False
        if self._file is not None:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            except OSError:  # another process has it
                self._mine[number].release()
                return False
        return True


class SlowStatementTurn:
    """The turn of one statement. The constructor waits for it, and raises if it does not come in time."""

    __slots__ = ("_number", "_time", "_turns", "waited")

    def __init__(self, turns: SlowStatementLimit, time: Deadline):
        self._turns, self._time = turns, time
        self.waited = 0.0  # seconds
        self._number: int | None = None
        turns.enter(self)
        try:
            self._wait()
        except BaseException:
            turns.leave(self)
            raise

    def pass_on(self) -> None:
        """Release the turn and wait for the next one."""
        self._give_back()
        sleep(_LOOK)  # lets waiting threads notice
        self._wait()

    def end(self) -> None:
        try:
            self._give_back()
        finally:
            self._turns.leave(self)

    @property
    def refusal(self) -> TooManySlowQueries | QueryTooSlow:
        """Return the timeout error, which depends on whether more than half of the time was spent waiting."""
        return TooManySlowQueries() if self.waited > self._time.seconds / 2 else QueryTooSlow(self._time.seconds)

    def _wait(self) -> None:
        began = monotonic()
        while (number := self._take()) is None:
            self.waited, began = self.waited + monotonic() - began, monotonic()
            if self._time.is_over():
                raise self.refusal
            memory.check()  # the statement keeps its memory while it waits
            sleep(_LOOK)
        self.waited += monotonic() - began
        self._number = number

    def _take(self) -> int | None:
        return self._turns.take() if self._turns.has_place_for(self) else None

    def _give_back(self) -> None:
        if self._number is not None:
            self._turns.give_back(self._number)
            self._number = None


class SlowStatements:
    """Statements that were slow the last time, each with its values, and how many times in a row they were.

    Values count, since a statement may be fast with others. Only a hash of statement and values is kept, as values may
    be large. On a collision, a statement may wait needlessly, but is still answered.
    """

    def __init__(self) -> None:
        self._times: OrderedDict[int, int] = OrderedDict()
        self._noting = Lock()

    def times(self, sql: str, values: Sequence[object]) -> int:
        return self._times.get(hash((sql, *values)), 0) if self._times else 0

    def note(self, sql: str, values: Sequence[object], times: int) -> None:
        """Record that it was slow, now `times` times in a row; concurrent runs all pass the same number."""
        with self._noting:
            self._times[hash((sql, *values))] = times
            if len(self._times) > _MOST:
                self._times.popitem(last=False)

    def forget(self, sql: str, values: Sequence[object]) -> None:
        with self._noting:
            self._times.pop(hash((sql, *values)), None)

    def clear(self) -> None:
        with self._noting:
            self._times.clear()


known = SlowStatements()
