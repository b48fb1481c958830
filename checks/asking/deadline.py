"""Deadlines: one time limit for all work on a question, from reading the policy to the answer.

Code that answers a question opens a `Deadline`. Code that runs inside of it calls `check` wherever policies and facts
determine how long it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from math import inf
from time import monotonic, thread_time
from typing import Protocol

from checks.errors import QueryTooSlow

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


class Lock(Protocol):
    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...
    def release(self) -> None: ...


@contextmanager
def locked(lock: Lock) -> Iterator[None]:
    """Hold the lock. Raise `QueryTooSlow` if it is not free before the question's deadline."""
    found = _opened.get()
    if found is None or found.end == inf:
        lock.acquire()
    elif not lock.acquire(timeout=found.left()):
        raise QueryTooSlow(found.seconds)
    try:
        yield
    finally:
        lock.release()
