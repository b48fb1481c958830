"""When those who come are to wait in line, and when they are told to come again instead.

A line that empties again and again is good: it lets bursts pass. One that has stood for `PATIENCE` seconds does not get
shorter by itself, for more is asked than can be answered; and the longer it is, the later everybody in it is answered,
as many as before. So from then on it is kept short, until it has once been empty.
"""

import time

from django.conf import settings

SHORT = 4  # who may stand in such a line, for each thread: they are answered within five times as long as alone


class Line:
    """Says it of one line; whoever has that keeps others from asking at the same time."""

    def __init__(self, threads: int):
        self._short = SHORT * threads
        self._standing_since = 0.0  # 0 where nobody waits

    def note(self, waiting: int) -> None:
        """Whenever somebody has come or gone."""
        if not waiting:
            self._standing_since = 0.0
        elif not self._standing_since:
            self._standing_since = time.monotonic()

    def takes(self, waiting: int) -> bool:
        """Whether one more may wait behind so many."""
        if waiting < self._short or not settings.PATIENCE:
            return True
        return time.monotonic() - self._standing_since < settings.PATIENCE
