"""Threads for requests that wait for changes: few, and none of those that questions need."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from authz_project.server.changes import Changes, done, handed


class Waiting:
    """So many requests wait at once; who finds no place does not wait. What they read, threads of `changes` read."""

    def __init__(self, places: int, changes: Changes):
        self.size = self._free = places
        self.waiting = 0  # who finds no place does not wait
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(places, "wait", initializer=changes.hand_on)

    @property
    def busy(self) -> int:
        return self.size - self._free

    def do(self, work: Callable[..., None], *arguments: object) -> bool:
        """Whether there is a place, for work that may wait. It deals with its failures."""
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
