"""The progress of a command, on one line of the terminal, once the command takes longer than `PATIENCE`.

A thread of its own draws the line, so that the clock moves even while a single SQL statement takes a minute. The code
that works only calls `tell`, as often as it likes. If the output is not a terminal, nothing is drawn.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")

PATIENCE = 2.0  # seconds before anything is shown
EVERY = 0.2  # seconds between two drawings
BAR = 24  # characters
_ERASED_TO_THE_END = "\033[K"


class Terminal(Protocol):
    """A stream of Django's commands."""

    def isatty(self) -> bool: ...
    def write(self, msg: str = "", style_func: None = None, ending: str | None = None) -> None: ...
    def flush(self) -> None: ...


class Progress:
    """A context manager that shows a line while it is entered, and erases it at the end."""

    def __init__(self, what: str, stream: Terminal, patience: float = PATIENCE, every: float = EVERY):
        self.what = what
        self.stream = stream
        self.patience, self.every = patience, every
        self.count: int | None = None  # of what is done
        self.share: float | None = None  # of all there is to do, where that is known
        self.note = ""
        self._is_seen = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = ""
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._began = time.monotonic()

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        if self._is_seen:
            threading.Thread(target=self._draw_until_over, daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._is_over.set()
        with self.aside():
            pass

    def tell(self, count: int | None = None, share: float | None = None, note: str = "") -> None:
        """Set what the line shows next; a value that is left out is no longer shown."""
        self.count, self.share, self.note = count, share, note

    def counted(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and count them as they pass."""
        for self.count, item in enumerate(items, 1):
            yield item

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Erase the line, and draw none while other output is written."""
        with self._lock:
            if self._drawn:
                self._write(f"\r{_ERASED_TO_THE_END}")
                self._drawn = ""
            yield

    def line(self, seconds: float, width: int) -> str:
        """Return the line as it is after `seconds`, cut to a terminal of `width` columns."""
        parts = [self.what]
        if self.share is not None:
            share = min(max(self.share, 0.0), 1.0)
            done = int(BAR * share)
            parts.append(f"[{'#' * done}{'.' * (BAR - done)}] {share:4.0%}")
        if self.count is not None:
            parts.append(f"{self.count:,}")
        if self.note:
            parts.append(self.note)
        parts.append(_clock(seconds))
        if self.share is not None and 0.02 < self.share < 1:
            parts.append(f"about {_clock(seconds / self.share - seconds)} left")
        return "  ".join(parts)[: max(width - 1, 1)]

    def _draw_until_over(self) -> None:
        wait = self.patience
        while not self._is_over.wait(wait):
            wait = self.every
            line = self.line(time.monotonic() - self._began, shutil.get_terminal_size().columns)
            with self._lock:
                if line != self._drawn and not self._is_over.is_set():
                    # Overwrite the old line, then erase its rest: erasing it first would flicker.
                    self._write(f"\r{line}{_ERASED_TO_THE_END}")
                    self._drawn = line

    def _write(self, text: str) -> None:
        self.stream.write(text, ending="")
        self.stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
