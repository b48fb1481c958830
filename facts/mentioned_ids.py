"""Ids that stored facts mention, by type, for whoever has to pick some. Indexes are looked into, never all facts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db import connection

from facts.numbering import signature_numbers
from facts.read import index_condition, places_of
from policy.rules.program import Signature

MOST_IDS = 20_000  # of a type
LOOKED_AT = 200  # facts for each place in a signature, where somebody writes the beginning of an id
_MOST_PLACES = 40  # of a type

# From each id straight to the next one: the time depends on how many ids there are, and not on how many facts.
_STEPS = """
WITH RECURSIVE seen(id) AS (
  SELECT MIN({column}) FROM fact WHERE sig = %s{condition}
  UNION ALL
  SELECT (SELECT MIN({column}) FROM fact WHERE sig = %s{condition} AND {column} > seen.id)
  FROM seen WHERE seen.id IS NOT NULL
) SELECT id FROM seen WHERE id IS NOT NULL LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of a type, in order; `or_more` where only so many were read."""

    texts: tuple[str, ...]
    or_more: bool = False

    def __str__(self) -> str:
        return f"{len(self.texts):,}{' or more' if self.or_more else ''}"


def ids_of(numbers: Mapping[Signature, int], type_name: str, most: int = MOST_IDS) -> Ids:
    """The ids of the type that facts of these signatures mention, MOST_IDS at most of each place."""
    found: set[str] = set()
    or_more = False
    with connection.cursor() as cursor:
        for number, column in places_of(numbers, type_name):
            statement = _STEPS.format(column=column, condition=index_condition(column))
            cursor.execute(statement, (number, number, most + 1))
            ids = [text for (text,) in cursor.fetchall()]
            or_more |= len(ids) > most
            found.update(ids[:most])
    return Ids(tuple(sorted(found)), or_more)


def known_ids(environment_id: int, types: Iterable[str], start: str = "", limit: int = 50) -> dict[str, list[str]]:
    """For each type some ids that begin with `start`, in order; those of the places that are looked at first."""
    numbers = signature_numbers(environment_id)
    places = {name: places_of(numbers, name)[:_MOST_PLACES] for name in types}
    return {name: sorted(_ids_from(start, found))[:limit] for name, found in places.items() if found}


def _ids_from(start: str, places: list[tuple[int, str]]) -> set[str]:
    found: set[str] = set()
    with connection.cursor() as cursor:
        for number, column in places:
            condition = index_condition(column)
            cursor.execute(
                f"SELECT {column} FROM fact WHERE sig = %s AND {column} >= %s{condition} ORDER BY {column} LIMIT %s",
                (number, start, LOOKED_AT),
            )
            found.update(text for (text,) in cursor.fetchall() if text.startswith(start))
    return found
