"""Turns of statements that take long, so that a processor is always left to all the others.

Where every processor is busy for long, whoever needs one for a moment waits for milliseconds: ten times as long as
most questions take. So of the statements that take long, `LONG_AT_ONCE` run at a time, in all processes of a server
together; the others wait until it is their turn. Where too many wait, and somebody does so for long, one more is told
to come again, so that threads are left to those that take no time.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from threading import Lock
from time import monotonic, sleep

from django.conf import settings

from checks.asking.deadline import Deadline
from checks.errors import Crowded, QueryTooSlow

LONG = 0.1  # seconds from which on a statement takes long
_LOOK = 0.01  # seconds between looks whether somebody's turn has ended
_MOST = 1000  # turns, and statements that are known to take long


class Turns:
    """`count` at a time, of this process or of all that have the same `file`; 0 is no limit."""

    def __init__(self, count: int, file: str = ""):
        self.count = count
        self.most_here = sys.maxsize  # statements of this process that may run and wait for their turn, all together
        self._here: dict[Turn, float] = {}  # since when, the first one first
        self._counting = Lock()
        self._mine = [Lock() for _ in range(count)]  # one for each turn: the file's hold off other processes only
        self._file = _opened(file) if file and count else None  # a turn is one of its bytes

    @contextmanager
    def one(self, time: Deadline) -> Iterator[Turn]:
        """Have a turn for what is done inside."""
        turn = Turn(self, time)
        try:
            yield turn
        finally:
            turn.end()

    def enter(self, turn: Turn) -> None:
        with self._counting:
            self._here[turn] = monotonic()

    def leave(self, turn: Turn) -> None:
        with self._counting:
            del self._here[turn]

    def has_place_for(self, turn: Turn) -> bool:
        """Say whether it is among the first `most_here`; refuse it if not, and the first of all is here for long.

        Where that one has just come, the machine may have stood still and made all of them look long: it is soon done.
        """
        with self._counting:
            if turn in islice(self._here, self.most_here):
                return True
            if monotonic() - next(iter(self._here.values())) > LONG:
                raise Crowded
        return False

    def take(self) -> int | None:
        """Take one that nobody has; None if there is none."""
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


def _opened(file: str) -> int | None:
    """Open it; where that is not allowed, each process has turns of its own."""
    try:
        return os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None


class Turn:
    """One statement's. Whoever makes it waits for it; and is refused if it does not come in time."""

    __slots__ = ("_number", "_time", "_turns", "waited")

    def __init__(self, turns: Turns, time: Deadline):
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
        """Let others have it, and wait for the next one."""
        self._give_back()
        sleep(_LOOK)  # in which they see it
        self._wait()

    def end(self) -> None:
        try:
            self._give_back()
        finally:
            self._turns.leave(self)

    @property
    def refusal(self) -> Crowded | QueryTooSlow:
        """What to say when the time is over: that others took most of it, or that it takes too long."""
        return Crowded() if self.waited > self._time.seconds / 2 else QueryTooSlow(self._time.seconds)

    def _wait(self) -> None:
        began = monotonic()
        while (number := self._take()) is None:
            self.waited, began = self.waited + monotonic() - began, monotonic()
            if self._time.is_over():
                raise self.refusal
            sleep(_LOOK)
        self.waited += monotonic() - began
        self._number = number

    def _take(self) -> int | None:
        return self._turns.take() if self._turns.has_place_for(self) else None

    def _give_back(self) -> None:
        if self._number is not None:
            self._turns.give_back(self._number)
            self._number = None


turns = Turns(min(settings.LONG_AT_ONCE, _MOST), settings.TURNS_FILE)


class Known:
    """What took long, and so may be expected to: statements, each with its values, and how many times in a row.

    With other values it may take no time. What is kept is a number that stands for both, as values may be large; two
    that have the same number wait without need, and are answered all the same.
    """

    def __init__(self) -> None:
        self._times: OrderedDict[int, int] = OrderedDict()
        self._noting = Lock()

    def times(self, sql: str, values: Sequence[object]) -> int:
        return self._times.get(hash((sql, *values)), 0) if self._times else 0

    def note(self, sql: str, values: Sequence[object], times: int) -> None:
        """Note that it took long, so many times in a row. Many at once that are all the first are one time."""
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


known = Known()
