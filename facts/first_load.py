"""The first facts of a PostgreSQL database, where there are many: they come into a table without indexes.

Each index that is kept up to date while rows come takes longer than the row; all of them built at the end take a third
of the time. So facts wait in a table of the transaction, and those who ask go on. Then, in one go, the indexes of the
empty table are dropped, the facts moved, and the indexes built as they were: for so long, others wait, about 3 seconds
for a million facts. What nobody sees yet is the load, not the indexes: whoever had begun before finds the table empty,
as it was.

Where the table has had a row, or somebody holds on to it, or the database's role may not do so, the facts are moved
with the indexes in place.
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
    """Say whether the table of facts has no row, for nobody: what was deleted may be seen still by who began before."""
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
    """Have the table alone. Nobody has to wait behind this one meanwhile."""
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
