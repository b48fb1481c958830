"""When those who come are to wait in line, and when they are told to come again instead.

A line that is long only now and then is good: it lets bursts pass. One that was long for most of about `PATIENCE`
seconds does not get shorter by itself, for more is asked than can be answered; and the longer it is, the later all in
it are answered, as many as before. So from then on it is kept short, until it is shorter than that by itself for most
of the time.

That it is empty now and then says nothing: clients that wait for their answers come back in waves.
"""

import math
import time

from django.conf import settings

LONG = 16  # who stand in a line, for each thread: a hundred clients that wait for answers are none, for two workers
SHORT = 1  # who may stand in one that is kept short: they are answered within a few times as long as alone
_MOST = 0.5  # of the time


class Line:
    """Says it of one line; whoever has that keeps others from asking at the same time."""

    def __init__(self, threads: int):
        self._long, self._short = LONG * threads, SHORT * threads
        self._is_kept_short = False
        self._waiting = 0
        self._beyond_for = 0.0  # the share of about the last `PATIENCE` seconds in which so many waited, or more
        self._weighed_at = time.monotonic()

    def note(self, waiting: int) -> None:
        """Whenever somebody has come or gone."""
        if self._is_beyond(waiting) != self._is_beyond(self._waiting):
            self._weigh()
        self._waiting = waiting

    def takes(self, waiting: int) -> bool:
        """Whether one more may wait behind so many."""
        if waiting < self._short or not settings.PATIENCE:
            return True
        self._weigh()
        if self._is_kept_short:
            self._is_kept_short = self._beyond_for >= _MOST
        else:
            self._is_kept_short = waiting >= self._long and self._beyond_for >= _MOST
        return not self._is_kept_short

    def _is_beyond(self, waiting: int) -> bool:
        return waiting >= (self._short if self._is_kept_short else self._long)

    def _weigh(self) -> None:
        """Bring the share up to date: what was longer ago counts for less."""
        now = time.monotonic()
        if settings.PATIENCE:
            past = math.exp((self._weighed_at - now) / settings.PATIENCE)
            self._beyond_for = self._beyond_for * past + self._is_beyond(self._waiting) * (1 - past)
        self._weighed_at = now
