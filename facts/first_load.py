"""The first load of many facts into a PostgreSQL database: the indexes are dropped and built again at the end.

Keeping an index up to date takes longer than inserting the row; building all of them at the end takes a third of the
time. So the facts first go into a temporary table, and readers are not held up. Then, under an exclusive lock, the
indexes of the empty table are dropped, the facts moved, and the same indexes built again. Others wait for that long:
about 3 seconds for a million facts.

If the table has ever had a row, or others hold a lock on it, or the database's role may not do this, the facts are
moved with the indexes in place.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.db import DatabaseError, OperationalError, connection, transaction

from facts.copying import NAMES, copy
from facts.models import NewRow

LEAST = 20_000  # facts: for fewer, nobody need wait
_TRIES, _BETWEEN = 20, 0.05  # to have the table alone; seconds between two
_LOCKED = "55P03"  # PostgreSQL's code for a lock that somebody else has
_UNTOUCHED = "pg_relation_size('fact') = 0"


class _NotAlone(Exception):
    """Others read or write the table, or have written to it."""


def is_due() -> bool:
    """Say whether the fact table is empty for every transaction; an older one may still see rows deleted since."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_UNTOUCHED} AND has_database_privilege(current_database(), 'TEMPORARY')")
        return bool(cursor.fetchone()[0])


class FirstLoad:
    """Takes rows, and moves them into the table of facts in the end. All of it is one transaction."""

    def __init__(self) -> None:
        self._taken = 0
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE waiting (LIKE fact) ON COMMIT DROP")

    def take(self, rows: Sequence[NewRow]) -> int:
        """Have them wait; none is inserted yet."""
        copy("waiting", rows)
        self._taken += len(rows)
        return 0

    def end(self, may_be_alone: bool) -> int:
        """Move all that wait; return how many there are, each once.

        Whoever has the table alone keeps it until the transaction ends, so that is for the end of a load.
        """
        try:
            moved = self._moved_alone() if may_be_alone and self._taken >= LEAST else None
        except OperationalError:
            raise  # cancelled, or the database is lost
        except (DatabaseError, _NotAlone):  # a fact that was said twice, a role that does not own the table
            moved = None
        if moved is None:
            moved = self._moved(" ON CONFLICT DO NOTHING")
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE waiting")
        return moved

    def _moved(self, conflicts: str = "") -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO fact ({NAMES}) SELECT {NAMES} FROM waiting{conflicts}")
            return cursor.rowcount

    def _moved_alone(self) -> int:
        with transaction.atomic():  # which also lets go of the table where this fails
            _lock()
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT {_UNTOUCHED}")
                if not cursor.fetchone()[0]:
                    raise _NotAlone
                cursor.execute(_CONSTRAINTS)
                constraints = cursor.fetchall()
                cursor.execute(_INDEXES)
                indexes = cursor.fetchall()
                for name, _ in constraints:
                    cursor.execute(f"ALTER TABLE fact DROP CONSTRAINT {name}")
                for name, _ in indexes:
                    cursor.execute(f"DROP INDEX {name}")
                moved = self._moved()
                for name, definition in constraints:  # first: a fact that was said twice is found out by it
                    cursor.execute(f"ALTER TABLE fact ADD CONSTRAINT {name} {definition}")
                for _, definition in indexes:
                    cursor.execute(definition)
        return moved


# Names as statements write them; and what belongs to a constraint comes and goes with it.
_CONSTRAINTS = """
SELECT quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = 'fact'::regclass AND contype IN ('p', 'u') ORDER BY contype
"""
_INDEXES = """
SELECT quote_ident(c.relname), pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'fact'::regclass AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid)
ORDER BY c.relname
"""


def _lock() -> None:
    """Lock the table exclusively, trying with NOWAIT: a waiting lock request would block readers that come after it."""
    for _ in range(_TRIES):
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("LOCK TABLE fact IN ACCESS EXCLUSIVE MODE NOWAIT")
            return
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != _LOCKED:
                raise
        time.sleep(_BETWEEN)
    raise _NotAlone
