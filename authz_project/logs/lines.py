"""Writes log lines whole, so that lines of several threads and processes never mix.

Each line is one write. A pipe keeps only writes of up to PIPE_BUF bytes together, so longer lines lose their middle.
"""

from __future__ import annotations

import logging
import math
import os
import select
import stat
import threading
import time
from contextlib import suppress
from functools import cache

from authz_project.logs.formats import shortened

STANDARD_ERROR = 2
MOST_IN_FILE = 1 << 16  # bytes
LONGEST_BRIEF = 300  # characters of a text that a stranger can cause


@cache
def most_at_once() -> int:
    """Return how many bytes one write to standard error may have, to stay together."""
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(STANDARD_ERROR).st_mode)
    except OSError:
        return MOST_IN_FILE
    return select.PIPE_BUF if is_pipe else MOST_IN_FILE


def write(text: bytes) -> None:
    """Write whole lines. Raise `OSError` if standard error does not take them."""
    left = memoryview(text)
    while left:
        left = left[os.write(STANDARD_ERROR, left) :]


class OnceASecond:
    """Says of each line of a kind whether it is to be written: the first of a second is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[object, float] = {}
        self._left_out: dict[object, int] = {}

    def left_out_before(self, kind: object) -> int | None:
        """Return how many were left out since the last one that was written; None if this one is to be left out."""
        with self._lock:
            now = time.monotonic()
            if now - self._last.get(kind, -math.inf) < 1.0:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return None
            self._last[kind] = now
            return self._left_out.pop(kind, 0)


def more(left_out: int) -> str:
    return f" (and {left_out} more)" if left_out else ""


class Briefly(logging.Filter):
    """Keeps short what strangers can have written to the log: one line without a traceback, once a second for a logger.

    The loggers are few: Django names one after each kind of refusal, such as `django.security.DisallowedHost`.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._once = OnceASecond()

    def filter(self, record: logging.LogRecord) -> bool:
        left_out = self._once.left_out_before(record.name)
        if left_out is None:
            return False
        text = " ".join(record.getMessage().split())
        record.msg, record.args = f"{text[:LONGEST_BRIEF]}{more(left_out)}", ()
        record.exc_info = record.exc_text = record.stack_info = None
        return True


class WholeLines(logging.Handler):
    """Writes records to standard error. One that cannot be written is lost: there is nowhere to report it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{shortened(self.format(record), most_at_once() - 1)}\n".encode("utf-8", "backslashreplace")
            with suppress(OSError):
                write(line)
        except Exception:
            self.handleError(record)
