"""The database's statistics of the fact table: PostgreSQL's are kept up to date, SQLite's are dropped.

PostgreSQL chooses an index by its statistics, and autovacuum updates these only once a minute or so. A table that was
filled a moment ago has none: a list over it read a whole signature for each row of another.

On SQLite, statements are written for a table without statistics, and statistics can make its choices worse: a question
about nested teams took ten times as long after `ANALYZE`. So every run of `migrate` drops what an `ANALYZE` left.
"""

from __future__ import annotations

from threading import Lock

from django.db import connection, transaction

FEWEST = 500  # facts: fewer are quick to read by any index
SHARE = 0.1  # of the facts that were counted last


def forget_statistics() -> None:
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat1', 'sqlite_stat4')")
            for (name,) in cursor.fetchall():
                cursor.execute(f"DROP TABLE {name}")


class _Stored:
    """Facts that this process stored since it last had them counted."""

    def __init__(self) -> None:
        self.number = 0
        self.due = FEWEST  # from how many on the statistics are looked at next: a look takes three statements
        self.lock = Lock()

    def add(self, number: int) -> int:
        with self.lock:
            self.number += number
            return self.number

    def take(self, number: int) -> None:
        with self.lock:
            self.number -= number
            self.due = FEWEST


_stored = _Stored()


def note_stored(number: int) -> None:
    """Note that this transaction stores so many facts; once it is committed, run ANALYZE if that is due."""
    if number:
        # `robust`: an error here must not turn a committed change into an error response.
        transaction.on_commit(lambda: _look(_stored.add(number)), robust=True)


def _look(stored: int) -> None:
    if stored < _stored.due:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT reltuples FROM pg_class WHERE oid = 'fact'::regclass")
        (counted,) = cursor.fetchone()
        if stored < max(FEWEST, counted * SHARE):
            _stored.due = stored + FEWEST
            return
        _stored.take(stored)
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute("ANALYZE (SKIP_LOCKED) fact")
