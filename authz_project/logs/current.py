"""Which request this thread answers, for all log lines that are written meanwhile, by any code."""

from __future__ import annotations

import threading
from typing import Protocol


class Whose(Protocol):
    """What log lines say of a `Caller`."""

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
    """Have log lines of this thread name this request from now on. Its caller is not known yet."""
    current.request_id, current.path, current.caller = request_id, path, None


def leave() -> None:
    current.request_id = ""
