"""Which connections wait for their database at this moment, and since when.

A thread waits for its database without a timeout. So another thread looks here, and ends the waiting when the
database neither answers nor hangs up (`authz_project/server/silence.py`). It costs a statement less than a microsecond.
"""

from __future__ import annotations

from time import monotonic
from typing import Any
from weakref import WeakSet

waiting: dict[Any, float] = {}  # by connection of the driver: when it began to wait
replicas: WeakSet[Any] = WeakSet()  # connections to replicas, whose waiting `policy/replicas` ends


def begin(raw: Any) -> None:
    waiting[raw] = monotonic()


def end(raw: Any) -> None:
    waiting.pop(raw, None)
