"""A bounded cache whose hits take no lock, and settings that every request reads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar, cast

from django.conf import LazySettings, settings
from django.core.signals import setting_changed

# ---- recent -------------------------------------------------------------------------------------------------------
# A cache with room for so much, whose hits take no lock: most questions look up two things that are there.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Kept(Generic[V]):
    __slots__ = ("is_used", "value", "weight")

    def __init__(self, value: V, weight: int):
        self.value, self.weight = value, weight
        self.is_used = False  # since it was stored, or last passed over


class Recent(Generic[K, V]):
    """Evicts the oldest values first, but passes over those that were used since, once for each time it comes by.

    So what is used often stays. An LRU cache would do it by moving a value at each use, which takes a lock.
    """

    def __init__(self, most: int, weigh: Callable[[V], int] | None = None):
        """Make room for `most` values; with `weigh`, for values of that weight together."""
        self._most, self._weigh = most, weigh
        self._weight = 0  # of all
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()  # the next to be evicted first
        self._changing = Lock()

    def get(self, key: K) -> V | None:
        found = self._kept.get(key)
        if found is None:
            return None
        found.is_used = True
        return found.value

    def store(self, key: K, value: V) -> None:
        """Store a value, which must not weigh more than there is room for."""
        weight = self._weigh(value) if self._weigh else 1
        assert weight <= self._most, "a value has room"
        with self._changing:
            self._drop(key)
            while self._weight + weight > self._most:
                self._evict()
            self._kept[key] = _Kept(value, weight)
            self._weight += weight

    def drop(self, key: K) -> None:
        with self._changing:
            self._drop(key)

    def drop_all(self, is_meant: Callable[[K], bool]) -> None:
        """Drop the values of all keys that are meant."""
        with self._changing:
            for key in [key for key in self._kept if is_meant(key)]:
                self._drop(key)

    def clear(self) -> None:
        with self._changing:
            self._kept.clear()
            self._weight = 0

    def __len__(self) -> int:
        return len(self._kept)

    def _drop(self, key: K) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._weight -= found.weight

    def _evict(self) -> None:
        """Evict the first value, or pass over it."""
        key, first = next(iter(self._kept.items()))
        if first.is_used:
            first.is_used = False
            self._kept.move_to_end(key)
        else:
            self._drop(key)


# ---- Settings that every request reads, cached as plain attributes ------------------------------------------------
#     from policy.ground.cache import configured
#
#     if configured.RATE_LIMIT is not None: …
#
# Django's own attribute lookup takes longer than what is done with the setting. Each setting is looked up once, and
# again after a test has overridden any setting with a fixture or `override_settings`. Assigning to an attribute of
# Django's `settings` is not noticed.


class _Configured:
    def __getattr__(self, name: str) -> Any:
        """Look a setting up the first time it is read, and keep it as an attribute."""
        found = self.__dict__[name] = getattr(settings, name)
        return found


_all = _Configured()
configured = cast(LazySettings, _all)  # so that the type checker knows the settings' types


def _forget(**_: object) -> None:
    _all.__dict__.clear()


setting_changed.connect(_forget)
