"""What was made once for a key, as long as there is room for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

from checks.asking import deadline

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Lets go first of what was used least lately. What many ask for at once is made by one of them."""

    def __init__(self, most: int, weigh: Callable[[V], int] | None = None):
        """Make room for so many, or for so much, where things are weighed."""
        self._kept: LRUCache[K, V] = LRUCache(most, weigh)
        self._changing = Lock()  # every use changes the order in which things go
        self._making = tuple(Lock() for _ in range(16))

    def get(self, key: K) -> V | None:
        with self._changing:
            try:
                return self._kept[key]
            except KeyError:
                return None

    def keep(self, key: K, made: V) -> None:
        """Remember what is at hand; it must not weigh more than there is room for."""
        with self._changing:
            self._kept[key] = made

    def made_once(self, key: K, make: Callable[[], V]) -> V:
        """Return what `get` gives, or make it. Nobody waits for another longer than the question may take."""
        with deadline.holding(self._making[hash(key) % len(self._making)]):
            found = self.get(key)
            if found is None:
                found = make()
                self.keep(key, found)
            return found

    def clear(self) -> None:
        with self._changing:
            self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)
