"""The log beside an SQLite file, which has what was changed lately: kept from growing without end.

SQLite puts changes from the log into the file as it goes, but begins the log anew only at a moment when nobody reads
from it. Where readers that take long follow each other without a gap, there is none. So where the log has become large,
writers are held up for a while: then all who read go, and who comes reads from the file.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

from django.conf import settings
from django.db import connection

log = logging.getLogger("authz.database")

LARGE = 64 << 20  # bytes, from which on writers wait a moment for it
VERY_LARGE = 8 * LARGE  # from which on they wait for as long as questions may take
A_MOMENT = 1.0  # seconds


def keep_small() -> None:
    """Begin the log anew if it is large; where somebody reads for longer than that may take, another time."""
    if connection.vendor != "sqlite":
        return
    database = Path(connection.settings_dict["NAME"])
    size = size_of_log(database)
    try:
        if size < LARGE or is_begun_anew(database, patience(size)):
            return
        reason = "somebody has been reading for long, as a backup or dump_facts does"
    except sqlite3.Error as error:
        reason = str(error)
    log.warning("the log beside the database has %s MiB, and cannot be begun anew yet: %s", f"{size >> 20:,}", reason)


def size_of_log(database: Path) -> int:
    """Return how many bytes it takes on the disk."""
    try:
        return database.with_name(f"{database.name}-wal").stat().st_size
    except OSError:
        return 0


def patience(size: int) -> float:
    """Return for how long others may be held up from writing."""
    if size < VERY_LARGE:
        return A_MOMENT
    wait = 2 * settings.STATEMENT_TIMEOUT + A_MOMENT
    return min(wait, settings.WRITE_TIMEOUT / 2) if settings.WRITE_TIMEOUT else wait


def is_begun_anew(database: Path, wait: float) -> bool:
    """Put all of it into the file, and give its room back; say whether nobody was in the way for so long."""
    with closing(sqlite3.connect(database, timeout=wait, isolation_level=None)) as own:
        own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # most of the work, while others write
        is_busy, *_ = own.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not is_busy
