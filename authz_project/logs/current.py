"""Which request this thread answers: log lines say so, whoever writes them."""

from __future__ import annotations

import threading
from typing import Protocol


class Whose(Protocol):
    """A `Caller`, of whom lines say no more than this."""

    @property
    def environment(self) -> str: ...
    @property
    def key_id(self) -> int | None: ...


class _Current(threading.local):
    request_id = ""
    path = ""
    caller: Whose | None = None


current = _Current()


def enter(request_id: str, path: str) -> None:
    """From now on, lines of this thread are about this request. Nobody knows yet whose it is."""
    current.request_id, current.path, current.caller = request_id, path, None


def leave() -> None:
    current.request_id = ""
