"""The queue of the decision log, and the thread that writes it: whole lines, however many processes append to a file.

No request waits for the queue: an entry that has no room in it is left out and counted. The file is opened for each
write, so that a new one is made after the old one was moved away.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import stat
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from policy import noticing

Waiting = TypeVar("Waiting")  # what there is to say, before it is a line

log = logging.getLogger("authz.decisions")

STANDARD_OUTPUT = "-"
ROOM = 32 << 20  # bytes of what waits to be written
_PAUSE = 0.1  # seconds between writes
_COMPLAINT_EVERY = 60.0  # seconds
_LOCKED_WITHIN = 1.0  # second


def _notice_lines(**numbers: int) -> None:
    if noticing.is_on and any(numbers.values()):
        noticing.note("log", **numbers)


class Writer(Generic[Waiting]):
    """A queue, and a thread that empties it, which starts with the first entry."""

    def __init__(self, path: str, line_of: Callable[[Waiting], bytes | None]):
        self._path, self._line_of = path, line_of
        self._waiting: list[Waiting] = []
        self._size = 0
        self._left_out, self._reason = 0, ""
        self._complained = -_COMPLAINT_EVERY
        self._is_torn = self._was_torn = False  # whether the last line may lack its end: now; before the latest write
        self._written = 0  # lines
        self._changing, self._writing = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, entry: Waiting, size: int) -> None:
        with self._changing:
            if self._size + size > ROOM:
                self._left_out, self._reason = self._left_out + 1, "they came faster than they could be written"
                _notice_lines(dropped=1)
                return
            self._waiting.append(entry)
            self._size += size
            if self._thread is None:
                self._start()

    def leave_out(self, number: int, reason: Exception) -> None:
        _notice_lines(dropped=number)
        with self._changing:
            self._left_out, self._reason = self._left_out + number, f"{type(reason).__name__}: {reason}"
            if self._thread is None:
                self._start()

    def flush(self) -> None:
        """Write all that is queued. Never raises an `Exception`."""
        with self._writing:
            with self._changing:
                entries, self._waiting, self._size = self._waiting, [], 0
            lines: list[bytes] = []
            for entry in entries:
                try:
                    if line := self._line_of(entry):
                        lines.append(line)
                except Exception as reason:
                    self.leave_out(1, reason)
            before = self._written
            try:
                self._write(lines)
            except OSError as reason:
                self.leave_out(len(lines) - (self._written - before), reason)
            _notice_lines(written=self._written - before)

    def complain(self) -> None:
        """Report how many decisions are not in the decision log, at most once a minute."""
        with self._changing:
            now = time.monotonic()
            if not self._left_out or now - self._complained < _COMPLAINT_EVERY:
                return
            left_out, self._left_out, self._complained = self._left_out, 0, now
        log.error("%s decisions are not in the decision log: %s", f"{left_out:,}", self._reason)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="decision log", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def _run(self) -> None:
        while True:
            time.sleep(_PAUSE)
            self.flush()
            self.complain()

    def _end(self) -> None:
        self.flush()
        self._complained = -_COMPLAINT_EVERY
        self.complain()

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        if self._path == STANDARD_OUTPUT:
            for line in lines:  # a pipe takes a short line in one piece
                self._put_out(1, line)
                self._written += 1
            return
        file = opened(self._path)
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                self._append(file, b"".join(lines))
            else:
                self._put_out(file, b"".join(lines))
            self._written += len(lines)
        finally:
            os.close(file)  # which releases its lock as well

    def _append(self, file: int, text: bytes) -> None:
        """Append to a file. If its disk is full, keep the lines that were written whole, and cut off the rest."""
        is_alone = _locked(file)
        start = os.fstat(file).st_size
        try:
            self._put_out(file, text)
        except OSError:
            added = os.fstat(file).st_size - start
            whole = text.rfind(b"\n", 0, max(0, added)) + 1
            if is_alone and 0 <= added <= len(text) and not self._was_torn:
                os.ftruncate(file, start + whole)
                self._is_torn = False
                self._written += text.count(b"\n", 0, whole)
            raise

    def _put_out(self, file: int, text: bytes) -> None:
        self._was_torn = self._is_torn
        left = memoryview(b"\n" + text if self._is_torn else text)
        self._is_torn = True
        while left:
            left = left[os.write(file, left) :]
        self._is_torn = False


def _locked(file: int) -> bool:
    """Lock the file, so that no other process writes behind a part of a line, and say whether that succeeded.

    It fails on a disk without locks, or if another process does not release its lock in time.
    """
    until = time.monotonic() + _LOCKED_WITHIN
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_LOCKED_WITHIN / 100)
        except OSError:
            return False


def opened(path: str) -> int:
    """Open the file to append to it. If it is made now, only its owner can read it."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
