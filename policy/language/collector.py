"""Large inputs without the cyclic garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Reading a large text makes a million objects, keeps nearly all, and makes no cycles: looking for some again
    and again would take a third of the time. Whoever finds the collector off leaves it off, so these may overlap."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
