"""Writes log lines whole, so that lines of several threads and processes never mix.

Each line is one write. A pipe keeps only writes of up to PIPE_BUF bytes together, so longer lines lose their middle.
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


class WholeLines(logging.Handler):
    """Writes records to standard error. One that cannot be written is lost: there is nowhere to report it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{shortened(self.format(record), most_at_once() - 1)}\n".encode("utf-8", "backslashreplace")
            with suppress(OSError):
                write(line)
        except Exception:
            self.handleError(record)
