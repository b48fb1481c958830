"""Turns of statements that take long, so that a processor is always left to all the others.

Where every processor is busy for long, whoever needs one for a moment waits for milliseconds: ten times as long as
most questions take. So of the statements that take long, `LONG_AT_ONCE` run at a time, in all processes of a server
together; the others wait until it is their turn. Where too many wait, one more is told to come again, so that threads
are left to those that take no time.
"""

from __future__ import annotations

import fcntl
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from threading import Lock
from time import sleep

from django.conf import settings

from checks.asking.deadline import Deadline
from checks.errors import Crowded

LONG = 0.1  # seconds from which on a statement takes long
_LOOK = 0.01  # seconds between looks whether somebody's turn has ended
_MOST_KNOWN = 1000


class Turns:
    """`count` at a time, of this process or of all that have the same `file`; 0 is no limit."""

    def __init__(self, count: int, file: str = ""):
        self.count = count
        self.most_here = inf  # statements of this process that may run and wait, all together
        self._here = 0
        self._counting = Lock()
        self._mine = [Lock() for _ in range(count)]  # one for each turn: the file's hold off other processes only
        self._file = os.open(file, os.O_RDWR | os.O_CLOEXEC) if file and count else None  # a turn is one of its bytes

    @contextmanager
    def one(self, time: Deadline) -> Iterator[None]:
        """Have a turn for what is done inside."""
        turn = Turn(self, time)
        try:
            yield
        finally:
            turn.end()

    def enter(self) -> None:
        with self._counting:
            if self._here >= self.most_here:
                raise Crowded
            self._here += 1

    def leave(self) -> None:
        with self._counting:
            self._here -= 1

    def free(self) -> int | None:
        """Take one that nobody has; None if there is none."""
        return next((place for place in range(self.count) if self._takes(place)), None)

    def give_back(self, place: int) -> None:
        if self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)
        self._mine[place].release()

    def _takes(self, place: int) -> bool:
        if not self._mine[place].acquire(blocking=False):
            return False
        if self._file is not None:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except OSError:  # another process has it
                self._mine[place].release()
                return False
        return True


class Turn:
    """One statement's, from the moment on that it needs one; raises `Crowded` where it gets none in its time."""

    __slots__ = ("_place", "_time", "_turns")

    def __init__(self, turns: Turns, time: Deadline):
        self._turns, self._time = turns, time
        turns.enter()
        self._place: int | None = None
        try:
            self._wait()
        except BaseException:
            turns.leave()
            raise

    def pass_on(self) -> None:
        """Let others have it, and wait for the next one."""
        self._give_back()
        sleep(_LOOK)  # in which they see it
        self._wait()

    def end(self) -> None:
        self._give_back()
        self._turns.leave()

    def _wait(self) -> None:
        while (place := self._turns.free()) is None:
            if self._time.is_over():
                raise Crowded
            sleep(_LOOK)
        self._place = place

    def _give_back(self) -> None:
        if self._place is not None:
            self._turns.give_back(self._place)
            self._place = None


turns = Turns(settings.LONG_AT_ONCE, settings.TURNS_FILE)


class Known:
    """Statements that took long the last time, and so may be expected to."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()
        self._noting = Lock()

    def __contains__(self, sql: str) -> bool:
        return sql in self._known

    def add(self, sql: str) -> None:
        with self._noting:
            self._known[sql] = None
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)

    def discard(self, sql: str) -> None:
        with self._noting:
            self._known.pop(sql, None)


known = Known()
