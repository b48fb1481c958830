"""Large inputs without the cyclic garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_inside = 0  # how many read at once: the first turns it off, and the last on again
_was_enabled = True


@contextmanager
def without_collections() -> Iterator[None]:
    """Reading a large text makes a million objects, keeps nearly all, and makes no cycles: looking for some again
    and again would take a third of the time. Whoever finds the collector off leaves it off."""
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside, _was_enabled
    with _lock:
        if not _inside:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside += 1


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if not _inside and _was_enabled:
            gc.enable()
