"""A cache of what was made once for a key, as long as there is room for it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from checks.asking import deadline
from policy.ground.cache import K, Recent, V


class Cache(Recent[K, V]):
    """A cache. If several threads ask for a missing key at once, one makes the value, the others wait."""

    def __init__(self, most: int, weigh: Callable[[V], int] | None = None):
        super().__init__(most, weigh)
        self._making = tuple(Lock() for _ in range(16))

    def made_once(self, key: K, make: Callable[[], V]) -> V:
        """Return the stored value, or make and store it. Waiting for a thread that makes it ends at the deadline."""
        with deadline.locked(self._making[hash(key) % len(self._making)]):
            found = self.get(key)
            if found is None:
                found = make()
                self.store(key, found)
            return found
