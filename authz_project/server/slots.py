"""A bounded number of threads for work that takes its time."""

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger("authz.server")


class Slots:
    """At most `count` threads are at work; what comes when all are waits in line, and whoever is done takes it up.

    Threads are not started here: one that brings work does it, if it may. So one more thread than there are slots is
    always free to look at what arrives.
    """

    def __init__(self, count: int):
        self._free = count
        self._waiting: deque[tuple] = deque()
        self._lock = threading.Lock()

    def do(self, work: Callable[..., None], *arguments: object) -> None:
        """Now, in this thread, or when there is a slot for it. Work deals with its failures; none may cost a slot."""
        with self._lock:
            if not self._free:
                self._waiting.append((work, arguments))
                return
            self._free -= 1
        while True:
            try:
                work(*arguments)
            except BaseException:  # granian's own are no Exceptions, and nobody is there to see them
                log.exception("a request was not answered")
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                work, arguments = self._waiting.popleft()
