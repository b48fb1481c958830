"""When those who come are to wait in line, and when they are told to come again instead.

A line that is long only now and then is good: it lets bursts pass. One that was long for most of about `PATIENCE`
seconds does not get shorter by itself, for more is asked than can be answered; and the longer it is, the later all in
it are answered, as many as before. So from then on it is kept short for a while.

After that it is tried: where it is long again at once, it is kept short for twice as long. Whether it could do without
does not show before, for those who are told to come again ask less than they would. That it is empty now and then says
nothing either: clients that wait for their answers come back in waves.
"""

import math
import time

from policy.configured import configured

LONG = 16  # who stand in a line, for each thread: a hundred clients that wait for answers are none, for two workers
SHORT = 1  # who may stand in one that is kept short: they are answered within a few times as long as alone
LONGEST = 16  # times PATIENCE, for which it is kept so before it is tried again
_MOST = 0.5  # of the time


class Line:
    """Says it of one line; whoever has that keeps others from asking at the same time."""

    def __init__(self, threads: int):
        self._long, self._short = LONG * threads, SHORT * threads
        self._is_long = False
        self._long_for = 0.0  # the share of about the last `PATIENCE` seconds in which it was
        self._weighed_at = time.monotonic()
        self._kept_until = -math.inf  # short
        self._kept_for = 0.0  # seconds, the last time

    def note(self, waiting: int) -> None:
        """Whenever somebody has come or gone."""
        is_long = waiting >= self._long
        if is_long != self._is_long:
            self._weigh(time.monotonic())
            self._is_long = is_long

    def takes(self, waiting: int) -> bool:
        """Whether one more may wait behind so many."""
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
        """Bring the share up to date: what was longer ago counts for less."""
        if configured.PATIENCE:
            past = math.exp((self._weighed_at - now) / configured.PATIENCE)
            self._long_for = self._long_for * past + self._is_long * (1 - past)
        self._weighed_at = now
