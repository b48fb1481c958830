"""Decides whether a request may wait in line, or is refused and told to retry (backpressure).

A line that is long only now and then is good: it absorbs bursts. A line that was long for most of the last `PATIENCE`
seconds or so does not get shorter by itself, because more is asked than can be answered. A longer line only delays
each answer; it does not raise their number. So from then on the line is kept short for a while.

After that, a long line is tried again. If the line is long again soon, it is kept short for twice as long as before.
Only trying shows whether this is still needed, because refused clients ask less than they would otherwise. A line that
is empty now and then shows nothing either: clients that wait for their answers come back in waves.
"""

import math
import time

from policy.configured import configured

LONG = 16  # requests for each thread: with two workers, a hundred clients that wait for answers make no long line
SHORT = 1  # requests, for each thread, in a line that is kept short: these take only a few times as long as one alone
LONGEST = 16  # times PATIENCE: a line is kept short for so long at most, before a long one is tried again
_MOST = 0.5  # share of the time


class Line:
    """Decides this for one line. It takes no lock: its owner holds one around each call."""

    def __init__(self, threads: int):
        self._long, self._short = LONG * threads, SHORT * threads
        self._is_long = False
        self._long_for = 0.0  # share of the last `PATIENCE` seconds, or so, in which the line was long
        self._weighed_at = time.monotonic()
        self._kept_until = -math.inf  # when the line is no longer kept short
        self._kept_for = 0.0  # seconds for which it was last kept short

    def note(self, waiting: int) -> None:
        """Take in how many requests wait; called whenever one has come or gone."""
        is_long = waiting >= self._long
        if is_long != self._is_long:
            self._weigh(time.monotonic())
            self._is_long = is_long

    def takes(self, waiting: int) -> bool:
        """Say whether one more may wait behind so many. Begin to keep the line short, if it was long for too long."""
        if waiting < self._short or not configured.PATIENCE:
            return True
        now = time.monotonic()
        if now < self._kept_until:
            return False
        if waiting < self._long:
            return True
        is_tried = now < self._kept_until + self._kept_for
        self._weigh(now)
        if not is_tried and self._long_for < _MOST:
            return True
        longest = LONGEST * configured.PATIENCE
        self._kept_for = min(2 * self._kept_for, longest) if is_tried else configured.PATIENCE
        self._kept_until = now + self._kept_for
        return False

    def _weigh(self, now: float) -> None:
        """Update `_long_for`, an exponentially weighted average: what was longer ago counts for less."""
        if configured.PATIENCE:
            past = math.exp((self._weighed_at - now) / configured.PATIENCE)
            self._long_for = self._long_for * past + self._is_long * (1 - past)
        self._weighed_at = now
