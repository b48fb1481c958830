"""What ails the database, by the code that it gives: what a caller is told, and whether trying again may help.

SQLite numbers its errors, PostgreSQL has five characters; Django keeps both behind an error of its own. For a
code that is not named here, callers are told in general that the database cannot be reached.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple


class Trouble(NamedTuple):
    status: int
    message: str
    retry_after: int = 0  # seconds; 0 says nothing of another time

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after)} if self.retry_after else {}


AWAY = Trouble(503, "the database cannot be reached, try again", 1)
FULL = Trouble(503, "the database's disk is full; nothing is changed, try again once there is room", 10)
READ_ONLY = Trouble(503, "the database can only be read now; nothing is changed, try again later", 10)
CROWDED = Trouble(503, "the database takes no more connections, try again", 1)
MEMORY = Trouble(503, "there is not enough memory for this now, try again", 1)
DISK = Trouble(503, "the database's disk reports errors; try again later", 10)
BUSY = Trouble(503, "others use the database for too long, try again", 1)
DAMAGED = Trouble(500, "the database is damaged and answers nothing; whoever runs it has to restore a backup")

_SQLITE = {  # by the code without its details
    sqlite3.SQLITE_BUSY: BUSY,
    sqlite3.SQLITE_NOMEM: MEMORY,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_IOERR: DISK,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_NOTADB: DAMAGED,
}
_POSTGRESQL = {  # by the code, or its class
    "25006": READ_ONLY,  # of a standby, or one that was a primary a moment ago
    "53100": FULL,
    "53200": MEMORY,
    "53300": CROWDED,
    "58030": DISK,
    "XX001": DAMAGED,
    "XX002": DAMAGED,
}


def trouble_of(error: BaseException) -> Trouble | None:
    """Tell what an error says of the database; None where it says nothing that is known here."""
    if isinstance(error, MemoryError):
        return MEMORY
    for each in _causes(error):
        if number := getattr(each, "sqlite_errorcode", 0):
            return _SQLITE.get(number & 0xFF)
        if code := getattr(each, "sqlstate", None):
            return _POSTGRESQL.get(code)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Go from Django's error to the driver's."""
    yield error
    if error.__cause__ is not None:
        yield error.__cause__
