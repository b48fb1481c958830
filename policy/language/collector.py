"""Read large inputs with the cyclic garbage collector switched off."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_inside = 0  # how many threads are inside: the first one switches the collector off, the last one on again
_was_enabled = True


@contextmanager
def without_collections() -> Iterator[None]:
    """Switch the cyclic garbage collector off inside the `with` block, for all threads; then restore its state.

    Reading a large text creates a million objects without cycles and keeps nearly all of them. Collections would find
    nothing and take a third of the time.
    """
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
