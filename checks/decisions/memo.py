"""Memoises a function of answers: for JSON from the cache, which is the same object every time, and for answers that
say yes or no and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import orjson

_MOST = 8 << 20  # bytes of answers that are known
_OVERHEAD = 500

Found = TypeVar("Found")


class Memo(Generic[Found]):
    """Calls `look` on a body; only once for the same JSON (bytes), or for the same yes or no."""

    def __init__(self, look: Callable[[object], Found]):
        self._look = look
        self._found: dict[bytes, Found] = {}
        self._size = 0
        self._of_decisions: dict[bool, Found] = {}

    def __call__(self, answer: object) -> Found:
        if not isinstance(answer, bytes):
            if not isinstance(answer, dict) or len(answer) != 1 or "allowed" not in answer:
                return self._look(answer)
            is_allowed = answer["allowed"]
            found = self._of_decisions.get(is_allowed)
            if found is None:
                found = self._of_decisions[is_allowed] = self._look(answer)
            return found
        found = self._found.get(answer)
        if found is None:
            found = self._look(orjson.loads(answer))
            if self._size > _MOST:
                self._found.clear()
                self._size = 0
            self._found[answer] = found
            self._size += len(answer) + _OVERHEAD
        return found
