"""Which connections wait for their database at this moment, and since when.

Who waits without looking at the clock is seen by others here: a server ends the waiting when the database neither
answers nor hangs up. It costs a statement less than a microsecond.
"""

from __future__ import annotations

from time import monotonic
from typing import Any
from weakref import WeakSet

waiting: dict[Any, float] = {}  # when it began to wait, by connection of the driver
replicas: WeakSet[Any] = WeakSet()  # connections to others than the primary, which are looked after elsewhere


def begun(raw: Any) -> None:
    waiting[raw] = monotonic()


def done(raw: Any) -> None:
    waiting.pop(raw, None)
