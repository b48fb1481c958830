"""Past facts: what a revision really changed, worked out after its changes have been made one after the other.

A batch often deletes what it inserts again: `delete has_role(User:ann, _, Org:acme)`, and then the roles that she has.
A fact that is the same before and after a revision has not changed, and is not recorded as changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection

from facts.models import COLUMNS

_KEY = ("sig", *COLUMNS)
_SAME = " AND ".join(f"fact.{name} = past_fact.{name}" for name in _KEY)


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many facts a revision inserted that were not there before, and deleted that were."""

    inserted: int = 0
    deleted: int = 0


def settle(numbers: Iterable[int], revision: int) -> None:
    """Undo what the revision ended and began again itself, of the signatures with these numbers."""
    here = f"past_fact.sig IN ({_listed(numbers)}) AND past_fact.until = %s"
    alike = "IS" if connection.vendor == "sqlite" else "IS NOT DISTINCT FROM"
    same = f"{_SAME} AND fact.expires_at {alike} past_fact.expires_at"
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM past_fact WHERE {here} AND since = until", (revision,))
        cursor.execute(
            f"UPDATE fact SET since = past_fact.since FROM past_fact WHERE {here} AND {same}"
            " AND fact.since = past_fact.until",
            (revision,),
        )
        # A stored fact has the `since` of its past fact only if the statement before this one restored it.
        restored = f"EXISTS (SELECT 1 FROM fact WHERE {same} AND fact.since = past_fact.since)"
        cursor.execute(f"DELETE FROM past_fact WHERE {here} AND {restored}", (revision,))


def changed(numbers: Iterable[int], first: int, last: int) -> dict[int, ChangeCounts]:
    """Return what each of these revisions changed, of facts of the signatures with these numbers."""
    listed = _listed(numbers)
    inserted: dict[int, int] = {}
    deleted: dict[int, int] = {}
    with connection.cursor() as cursor:
        counted = (("fact", "since", inserted), ("past_fact", "since", inserted), ("past_fact", "until", deleted))
        for table, column, counts in counted:
            cursor.execute(
                f"SELECT {column}, COUNT(*) FROM {table} WHERE sig IN ({listed}) AND {column} BETWEEN %s AND %s"
                f" GROUP BY {column}",
                (first, last),
            )
            for number, count in cursor.fetchall():
                counts[number] = counts.get(number, 0) + count
    return {each: ChangeCounts(inserted.get(each, 0), deleted.get(each, 0)) for each in range(first, last + 1)}


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers) or "NULL"
