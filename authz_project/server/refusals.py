"""Telling those whose turn does not come to come again: in a moment, and all of a moment together.

Who is told at once asks again at once, so that the processor does little but tell. Whoever is kept for a moment leaves
it to those that are answered.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger("authz.server")

KEPT_FOR = 0.2  # seconds
KEPT_AT_ONCE = 4096  # who comes then is told at once
_TICK = 0.02  # seconds between looks at whose moment is over

Tell = Callable[[], None]


class Refusals:
    """What it has to do, a thread does that sleeps while nobody is kept."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Tell]] = deque()  # with the time when they are told
        self._is_any = threading.Event()
        threading.Thread(target=self._watch, name="refusals", daemon=True).start()

    def tell(self, tell: Tell) -> None:
        if len(self._kept) >= KEPT_AT_ONCE:
            tell()
        else:
            self._kept.append((time.monotonic() + KEPT_FOR, tell))
            self._is_any.set()

    def _watch(self) -> None:
        while self._is_any.wait():
            time.sleep(_TICK)
            self._is_any.clear()
            self._tell_those_who_are_due()
            if self._kept:
                self._is_any.set()

    def _tell_those_who_are_due(self) -> None:
        """None of them is held here afterwards: granian waits for their end."""
        now = time.monotonic()
        while self._kept and self._kept[0][0] <= now:
            try:
                self._kept.popleft()[1]()
            except BaseException:  # granian's own are no Exceptions, and this thread is the only one
                log.exception("a request was not answered")
