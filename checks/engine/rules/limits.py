"""The deadline of planning, in processor time: every loop whose length depends on the rules checks it.

Planning holds Python's interpreter lock, so planning without end would stop the whole worker process. Processor time is
the same on a busy machine as on an idle one: load does not decide which questions are refused.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from checks.engine.errors import PlannedTooLong, Sprawling, TooComplex

PATIENCE = 1.0  # seconds of processor time
REFUSED_FOR = 60.0  # seconds; then planning is tried again, since chance may decide if it is just within the limit
MOST_REFUSED = 1000  # refusals that are remembered
_STEPS_BETWEEN_LOOKS = 100  # at the clock; one or two milliseconds


class _Deadline(threading.local):
    """This thread's deadline, in its processor time; `seconds` is the limit that it was made from, for the message."""

    until = inf
    seconds = inf
    steps = 0
    many = inf  # the count of steps after which to ask whether to give up
    gives_up: Callable[[], bool]
    spent: Counter[Hashable]

    def __init__(self) -> None:
        self.spent = Counter()


_deadline = _Deadline()


@contextmanager
def bounded(seconds: float) -> Iterator[bool]:
    """Limit the processor time of what is inside; 0 sets no limit. A bound around this one still holds.

    Yields whether this bound ends before the one around it. `tick` raises `PlannedTooLong` once the time is up. What
    `spend` counts starts at zero.
    """
    outer = _deadline.until, _deadline.seconds
    spent, _deadline.spent = _deadline.spent, Counter()
    until = time.thread_time() + (seconds or inf)
    is_nearest = until < _deadline.until
    if is_nearest:
        _deadline.until, _deadline.seconds = until, seconds
    try:
        yield is_nearest
    finally:
        _deadline.until, _deadline.seconds = outer
        _deadline.spent = spent


def steps_taken() -> int:
    """Return how many steps this thread has taken since it began, in all loops."""
    return _deadline.steps


@contextmanager
def within(steps: int, gives_up: Callable[[], bool]) -> Iterator[None]:
    """Once `steps_taken` exceeds `steps`, ask once whether to give up what is inside; if so, raise `Sprawling`."""
    _deadline.many, _deadline.gives_up = steps, gives_up
    try:
        yield
    finally:
        _deadline.many = inf


def tick() -> None:
    """Count one step of a loop. Now and then, let other threads run, and raise if the time is up."""
    _deadline.steps += 1
    if _deadline.steps % _STEPS_BETWEEN_LOOKS == 0:
        time.sleep(0)  # releases the interpreter lock: a thread that wants it would otherwise wait 5 ms each time
        if time.thread_time() > _deadline.until:
            raise PlannedTooLong(_deadline.seconds)
        if _deadline.steps > _deadline.many:
            _deadline.many = inf
            if _deadline.gives_up():
                raise Sprawling


def check() -> None:
    """Raise if the time is up: for steps that take longer than those which `tick` counts."""
    if time.thread_time() > _deadline.until:
        raise PlannedTooLong(_deadline.seconds)


@contextmanager
def uncounted() -> Iterator[None]:
    """Do not count the time of what is inside, nor limit it: it is no planning, or has a limit of its own."""
    until, began = _deadline.until, time.thread_time()
    _deadline.until = inf
    try:
        yield
    finally:
        _deadline.until = until + time.thread_time() - began


def spend(what: Hashable) -> None:
    """Count one step taken for this rule or predicate."""
    _deadline.spent[what] += 1


def spent() -> Counter[Hashable]:
    """Return how many steps were counted by `spend` since planning began, by what they were taken for."""
    return _deadline.spent


@dataclass
class Refusals:
    """What was refused a moment ago and is not planned again for a while."""

    known: dict[Hashable, tuple[TooComplex, float]] = field(default_factory=dict)

    def repeat(self, asked: Hashable) -> None:
        """Refuse again what was refused a moment ago."""
        refused, until = self.known.get(asked, (None, 0.0))
        if refused is not None and time.monotonic() < until:
            raise refused.with_traceback(None)

    def remember(self, asked: Hashable, refused: TooComplex) -> None:
        if len(self.known) >= MOST_REFUSED:
            self.known.clear()
        self.known[asked] = refused, time.monotonic() + REFUSED_FOR
