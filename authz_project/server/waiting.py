"""Threads for requests that wait for changes: a few of their own, so that questions keep theirs."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from authz_project.server.changes import Changes, done, handed


class Waiting:
    """Lets `places` requests wait at once; further ones are answered without waiting.

    Its threads keep no connection: the making threads of `changes` read for them.
    """

    def __init__(self, places: int, changes: Changes):
        self.size = self._free = places
        self.waiting = 0  # for metrics: there is no line for a place
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(places, "wait", initializer=changes.hand_on)

    @property
    def busy(self) -> int:
        return self.size - self._free

    def do(self, work: Callable[..., None], *arguments: object) -> bool:
        """Have a thread do the work, and return True; return False if no place or no thread can be had."""
        with self._lock:
            if not self._free:
                return False
            self._free -= 1
        if handed(self._threads, self._done, work, *arguments):
            return True
        self._one_more()
        return False

    def _done(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            done(work, *arguments)
        finally:
            self._one_more()

    def _one_more(self) -> None:
        with self._lock:
            self._free += 1
