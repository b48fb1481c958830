"""How long planning may take: a deadline in processor time, which every loop that rules can make long looks at.

Planning holds Python's one lock, so a policy that plans without end would stop its whole worker. Processor time is the
same on a busy machine as on an idle one: what is refused there is refused here.
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

PATIENCE = 1.0  # seconds
REFUSED_FOR = 60.0  # seconds; then it is planned again, since whether a plan is just within the limit may be chance
MOST_REFUSED = 1000  # that are remembered
_STEPS_BETWEEN_LOOKS = 50  # at the clock; about a millisecond


class _Deadline(threading.local):
    """This thread's, in its processor time; `seconds` is the limit that it was made from, for the message."""

    until = inf
    seconds = inf
    steps = 0
    many = inf  # steps after which to ask whether to give up
    gives_up: Callable[[], bool]
    spent: Counter[Hashable]

    def __init__(self) -> None:
        self.spent = Counter()


_deadline = _Deadline()


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Let what is inside take so long at most (0: any time), and no longer than a bound outside of it allows."""
    outer = _deadline.until, _deadline.seconds
    spent, _deadline.spent = _deadline.spent, Counter()
    until = time.thread_time() + (seconds or inf)
    if until < _deadline.until:
        _deadline.until, _deadline.seconds = until, seconds
    try:
        yield
    finally:
        _deadline.until, _deadline.seconds = outer
        _deadline.spent = spent


def steps_taken() -> int:
    """Of all loops of this thread."""
    return _deadline.steps


@contextmanager
def within(steps: int, gives_up: Callable[[], bool]) -> Iterator[None]:
    """Once so many steps are taken, ask whether to give up what is inside, and raise `Sprawling` then."""
    _deadline.many, _deadline.gives_up = steps, gives_up
    try:
        yield
    finally:
        _deadline.many = inf


def tick() -> None:
    """Count one step of a loop; now and then let other threads go first, and refuse once the time is up."""
    _deadline.steps += 1
    if _deadline.steps % _STEPS_BETWEEN_LOOKS == 0:
        time.sleep(0)  # gives Python's lock away: who wants it would else wait for 5 ms, each time it takes it again
        if time.thread_time() > _deadline.until:
            raise PlannedTooLong(_deadline.seconds)
        if _deadline.steps > _deadline.many:
            _deadline.many = inf
            if _deadline.gives_up():
                raise Sprawling


def spend(what: Hashable) -> None:
    """Count one step that is taken for something."""
    _deadline.spent[what] += 1


def spent() -> Counter[Hashable]:
    """The steps since planning began, by what they were taken for."""
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
