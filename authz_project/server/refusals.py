"""Sends refusals with a short delay, and several at a time.

A client that is refused at once retries at once, so that the processor does little but refuse. While a refusal is held
back, the processor is free for the requests that are answered.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger("authz.server")

KEPT_FOR = 0.2  # seconds
KEPT_AT_ONCE = 4096  # refusals; further ones are sent at once
_TICK = 0.02  # seconds between checks for refusals that are due

Send = Callable[[], None]  # sends one refusal


class Refusals:
    """Holds each refusal back for `KEPT_FOR` seconds. Its thread sleeps while there is none."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Send]] = deque()  # each with the time when it is due
        self._is_any = threading.Event()
        threading.Thread(target=self._watch, name="refusals", daemon=True).start()

    def send_later(self, send: Send) -> None:
        """Call `send` a moment later; at once if too many are held back."""
        if len(self._kept) >= KEPT_AT_ONCE:
            send()
        else:
            self._kept.append((time.monotonic() + KEPT_FOR, send))
            self._is_any.set()

    def _watch(self) -> None:
        while self._is_any.wait():
            time.sleep(_TICK)
            self._is_any.clear()
            self._send_those_due()
            if self._kept:
                self._is_any.set()

    def _send_those_due(self) -> None:
        """Call those that are due. No variable keeps one afterwards: granian waits until nothing refers to it."""
        now = time.monotonic()
        while self._kept and self._kept[0][0] <= now:
            try:
                self._kept.popleft()[1]()
            except BaseException:  # granian's own do not derive from Exception, and this thread must go on
                log.exception("a request was not answered")
