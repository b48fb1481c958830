"""A bounded cache with lock-free hits, and cached settings."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar, cast

from django.conf import LazySettings
from django.core.signals import setting_changed

from policy.core.config import settings

# ---- recent -------------------------------------------------------------------------------------------------------
# Hits take no lock because most requests make two lookups that both hit.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Kept(Generic[V]):
    __slots__ = ("is_used", "value", "weight")

    def __init__(self, value: V, weight: int):
        self.value, self.weight = value, weight
        self.is_used = False  # since it was stored, or last spared from eviction


class Recent(Generic[K, V]):
    """A CLOCK (second-chance) cache: evicts the oldest values, but spares those used since the last pass.

    Frequently used values therefore stay. An LRU cache would move a value at each hit, which takes a lock.
    """

    def __init__(self, most: int, weigh: Callable[[V], int] | None = None):
        """Limit the cache to `most` values or, with `weigh`, to values of that total weight."""
        self._most, self._weigh = most, weigh
        self._weight = 0  # total
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()  # next to evict first
        self._changing = Lock()

    def get(self, key: K) -> V | None:
        found = self._kept.get(key)
        if found is None:
            return None
        found.is_used = True
        return found.value

    def store(self, key: K, value: V) -> None:
        """Store a value. It must not weigh more than the cache's capacity."""
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
        """Drop the values of all keys for which `is_meant` returns true."""
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
        """Evict the first value, or give it a second chance."""
        key, first = next(iter(self._kept.items()))
        if first.is_used:
            first.is_used = False
            self._kept.move_to_end(key)
        else:
            self._drop(key)


# ---- Settings that every request reads, cached as plain attributes ------------------------------------------------
#     from policy.core.cache import configured
#
#     if configured.RATE_LIMIT is not None: …
#
# Django's own attribute lookup costs more than most uses of a setting. Each setting is looked up once, and again after
# a test has overridden any setting with a fixture or `override_settings`. Assigning to an attribute of Django's
# `settings` is not noticed.


class _Configured:
    def __getattr__(self, name: str) -> Any:
        """Look up a setting when it is first read, and cache it as an attribute."""
        found = self.__dict__[name] = getattr(settings, name)
        return found


_all = _Configured()
configured = cast(LazySettings, _all)  # so that the type checker knows the settings' types


def _forget(**_: object) -> None:
    _all.__dict__.clear()


setting_changed.connect(_forget)
