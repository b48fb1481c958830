"""How long planning may take: a deadline in processor time, looked at by every loop that rules can make long.

Whoever plans has Python's one lock while it does, so a policy that plans without end would stop its whole worker.
Processor time is the same on a busy machine as on an idle one: who is refused there is refused here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from checks.engine.errors import PlannedTooLong, TooComplex

PATIENCE = 2.0  # seconds
REFUSED_FOR = 60.0  # seconds: whether a plan is just within the limit may be chance
MOST_REFUSED = 1000  # that are remembered
_LOOKS = 50  # steps between two looks at the clock


class _Effort(threading.local):
    """Of this thread."""

    until = inf
    seconds = inf
    steps = 0


_mine = _Effort()


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """What is planned inside takes so long at most, 0 for ever; inside of another bound, no longer than that allows."""
    outer = _mine.until, _mine.seconds
    until = time.thread_time() + (seconds or inf)
    if until < _mine.until:
        _mine.until, _mine.seconds = until, seconds
    try:
        yield
    finally:
        _mine.until, _mine.seconds = outer


def tick() -> None:
    """One step of a loop."""
    _mine.steps += 1
    if _mine.steps % _LOOKS == 0 and time.thread_time() > _mine.until:
        raise PlannedTooLong(_mine.seconds)


@dataclass
class Refusals:
    """What took too long to plan, which is not planned again for a while."""

    known: dict[Hashable, tuple[TooComplex, float]] = field(default_factory=dict)

    def again(self, asked: Hashable) -> None:
        """Refuse what was refused a moment ago."""
        refused, until = self.known.get(asked, (None, 0.0))
        if refused is not None and time.monotonic() < until:
            raise refused.with_traceback(None)

    def remember(self, asked: Hashable, refused: TooComplex) -> None:
        if len(self.known) >= MOST_REFUSED:
            self.known.clear()
        self.known[asked] = refused, time.monotonic() + REFUSED_FOR
