"""A cache of what was made once for a key, as long as there is room for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

from checks.asking import deadline

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """An LRU cache. If several threads ask for a missing key at once, one makes the value, the others wait."""

    def __init__(self, most: int, weigh: Callable[[V], int] | None = None):
        """Make room for `most` values; with `weigh`, for values of that weight together."""
        self._stored: LRUCache[K, V] = LRUCache(most, weigh)
        self._changing = Lock()  # reading, too, changes the order of eviction
        self._making = tuple(Lock() for _ in range(16))

    def get(self, key: K) -> V | None:
        with self._changing:
            try:
                return self._stored[key]
            except KeyError:
                return None

    def store(self, key: K, made: V) -> None:
        """Store a value, which must not weigh more than there is room for."""
        with self._changing:
            self._stored[key] = made

    def made_once(self, key: K, make: Callable[[], V]) -> V:
        """Return the stored value, or make and store it. Waiting for a thread that makes it ends at the deadline."""
        with deadline.locked(self._making[hash(key) % len(self._making)]):
            found = self.get(key)
            if found is None:
                found = make()
                self.store(key, found)
            return found

    def clear(self) -> None:
        with self._changing:
            self._stored.clear()

    def __len__(self) -> int:
        return len(self._stored)
