"""Keep SQLite's write-ahead log from growing without bound.

A checkpoint copies changes from the log into the database file, but SQLite restarts the log only at a moment when no
transaction reads from it. If long-running readers overlap, there is no such moment. So once the log is large, writers
are blocked for a while: the current readers finish, and new ones find everything in the file.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from django.conf import settings
from django.db import connection

log = logging.getLogger("authz.database")

LARGE = 64 << 20  # bytes; above this, writers are blocked for a moment
VERY_LARGE = 8 * LARGE  # above this, they are blocked for as long as queries may take
A_MOMENT = 1.0  # seconds
WARNED_EVERY = 60.0  # seconds


class _Keeper:
    """Remembers the results of earlier attempts to truncate the log."""

    def __init__(self) -> None:
        self._in_vain_at = 0  # bytes, the size at which writers were blocked without success
        self._warned_at = -math.inf

    def keep_small(self) -> None:
        """Truncate the log if it is large; leave it if a transaction stays open for longer than the timeout."""
        if connection.vendor != "sqlite":
            return
        database = Path(connection.settings_dict["NAME"])
        size = size_of_log(database)
        if size < LARGE:
            return
        wait = self._patience(size)
        try:
            is_anew = is_begun_anew(database, wait)
        except sqlite3.Error as error:
            self._warn(size, str(error))
            return
        if is_anew:
            self._in_vain_at = 0
        elif wait > A_MOMENT:
            self._in_vain_at = size
        if is_anew is False:
            self._warn(size, "a long-running read, such as a backup or dump_facts, blocks it")

    def _patience(self, size: int) -> float:
        """Return the timeout: short after a failed long attempt, until the log has grown by VERY_LARGE."""
        return A_MOMENT if self._in_vain_at and size < self._in_vain_at + VERY_LARGE else patience(size)

    def _warn(self, size: int, reason: str) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARNED_EVERY:
            self._warned_at = now
            size >>= 20
            log.warning("the SQLite write-ahead log has grown to %s MiB and cannot be reset: %s", f"{size:,}", reason)


keep_small = _Keeper().keep_small


def size_of_log(database: Path) -> int:
    """Return the size of the log on disk, in bytes."""
    try:
        return database.with_name(f"{database.name}-wal").stat().st_size
    except OSError:
        return 0


def patience(size: int) -> float:
    """Return how long writers may be blocked."""
    if size < VERY_LARGE:
        return A_MOMENT
    wait = 2 * settings.STATEMENT_TIMEOUT + A_MOMENT
    return min(wait, settings.WRITE_TIMEOUT / 2) if settings.WRITE_TIMEOUT else wait


def is_begun_anew(database: Path, wait: float) -> bool | None:
    """Checkpoint the whole log and truncate it. Return whether that succeeded within `wait` seconds.

    False means that a reader prevented it; None, that a writer with a large change holds the log.
    """
    with closing(sqlite3.connect(database, timeout=wait, isolation_level=None)) as own:
        own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # most of the work, without blocking writers
        is_busy, *_ = own.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not is_busy:
            return True
        _, pages, in_the_file = own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return None if in_the_file == pages else False
