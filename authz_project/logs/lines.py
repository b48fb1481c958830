"""Writes lines whole: those of several threads and processes never run into each other.

A line is one write. Into a pipe, so much at once stays together as the system promises; longer lines lose their middle.
"""

from __future__ import annotations

import logging
import os
import select
import stat
from contextlib import suppress
from functools import cache

from authz_project.logs.formats import shortened

STANDARD_ERROR = 2
MOST_IN_FILE = 1 << 16  # bytes


@cache
def most_at_once() -> int:
    """Return how many bytes of a write stay together where lines go."""
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(STANDARD_ERROR).st_mode)
    except OSError:
        return MOST_IN_FILE
    return select.PIPE_BUF if is_pipe else MOST_IN_FILE


def write(text: bytes) -> None:
    """Write whole lines. Raises `OSError` where nobody takes them."""
    left = memoryview(text)
    while left:
        left = left[os.write(STANDARD_ERROR, left) :]


class WholeLines(logging.Handler):
    """Where records go. What cannot be written is lost: nobody could be told."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{shortened(self.format(record), most_at_once() - 1)}\n".encode("utf-8", "backslashreplace")
            with suppress(OSError):
                write(line)
        except Exception:
            self.handleError(record)
