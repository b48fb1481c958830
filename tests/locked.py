"""An SQLite file that is locked when a test is over: waited for, and if that takes long, told of."""

from __future__ import annotations

import gc
import sqlite3
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

SOON, LATEST = 5_000, 60_000  # milliseconds


def wait_until_free(connection: BaseDatabaseWrapper) -> None:
    """Threads of the test may still write, such as when a key was last used. Each takes milliseconds.

    Where somebody takes longer, a warning says what is known of it, and what nobody refers to any more is dropped:
    it may be a connection in the middle of a transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA busy_timeout = {SOON}")
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except OperationalError:
            warnings.warn(f"an SQLite file is locked\n{told(Path(connection.settings_dict['NAME']))}", stacklevel=2)
            gc.collect()
        else:
            cursor.execute("ROLLBACK")
        cursor.execute(f"PRAGMA busy_timeout = {LATEST}")


def told(database: Path) -> str:
    """What there is in this process and in others that may have it."""
    return "\n".join([*_locks(database), *_connections(), *_threads()])


def _locks(database: Path) -> Iterator[str]:
    """Those that the system knows, with the process that has each."""
    files = {path.stat().st_ino: path.name for path in database.parent.glob(f"{database.name}*")}
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            inode = line.split()[-3].rpartition(":")[2]
            if inode.isdecimal() and int(inode) in files:
                yield f"{files[int(inode)]}: {line}"


def _connections() -> Iterator[str]:
    """Of this process, with what refers to each; and cursors, which keep one alive after it was closed."""
    for each in gc.get_objects():
        if isinstance(each, sqlite3.Connection):
            referrers = sorted(type(one).__name__ for one in gc.get_referrers(each))
            yield f"connection {id(each):x}: {_state(each)}; {', '.join(referrers)} refer to it"
        elif isinstance(each, sqlite3.Cursor):
            yield f"cursor of connection {id(each.connection):x}: {_state(each.connection)}"


def _state(connection: sqlite3.Connection) -> str:
    try:
        return "in a transaction" if connection.in_transaction else "in no transaction"
    except sqlite3.Error as reason:
        return str(reason)


def _threads() -> Iterator[str]:
    names = {each.ident: each.name for each in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        yield f"{names.get(number)}:\n{''.join(traceback.format_stack(frame))}"
