"""Whether an SQLite file is whole, as far as a few seconds tell; and what to do where it is not."""

from __future__ import annotations

import sqlite3
import time

from django.db import Error, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from authz_project.trouble import DAMAGED, trouble_of

LOOKS_FOR = 2.0  # seconds; a file of a million facts takes one
_STEPS = 50_000  # of SQLite's machine between two looks at the clock
ADVICE = "keep it aside, put a backup in its place (Operations, Backup), and start again"


def refusal_of(error: Exception) -> str:
    """Return what is said of a database that cannot even be opened."""
    said = " ".join(str(error).split())
    if trouble_of(error) is DAMAGED:
        return f"the database {_file()} is damaged ({said}): {ADVICE}"
    if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN:
        return f"the database cannot be reached: {said}; SQLite has to be able to write {_file()} and in its folder"
    return f"the database cannot be reached: {said}"


def damage(mine: BaseDatabaseWrapper) -> str:
    """Return what is wrong with the file; nothing where `quick_check` finds no fault within LOOKS_FOR seconds."""
    raw, until = mine.connection, time.monotonic() + LOOKS_FOR
    raw.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        with mine.cursor() as cursor:
            (found,) = cursor.execute("PRAGMA quick_check(1)").fetchone()
    except Error as error:
        found = str(error) if trouble_of(error) is DAMAGED else "ok"
    finally:
        raw.set_progress_handler(None, 0)
    return "" if found == "ok" else f"the database {_file()} is damaged ({' '.join(found.split())[:200]}): {ADVICE}"


def _file() -> str:
    return str(connection.settings_dict["NAME"])
