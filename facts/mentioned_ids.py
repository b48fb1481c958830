"""The ids that stored facts mention, by type, to pick some from. They are read from indexes, never from all facts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db import connection

from facts.numbering import signature_numbers
from facts.read import index_condition, places_of
from facts.walk import IdRange, beginning
from policy.rules.program import Signature

MOST_IDS = 20_000  # of a type
_MOST_PLACES = 40  # of a type

# A loose index scan, from each id straight to the next one: its time depends on the number of ids, not of facts.
_STEPS = """
WITH RECURSIVE seen(id) AS (
  SELECT MIN({column}) FROM fact WHERE sig = %s{condition}
  UNION ALL
  SELECT (SELECT MIN({column}) FROM fact WHERE sig = %s{condition} AND {column} > seen.id)
  FROM seen WHERE seen.id IS NOT NULL
) SELECT id FROM seen WHERE id IS NOT NULL LIMIT %s
"""

_STEPS_FROM = """
WITH RECURSIVE seen(id) AS (
  SELECT MIN({column}) FROM fact WHERE sig = %s{condition} AND {column} >= %s
  UNION ALL
  SELECT (SELECT MIN({column}) FROM fact WHERE sig = %s{condition} AND {column} > seen.id)
  FROM seen WHERE seen.id IS NOT NULL
) SELECT id FROM seen WHERE id IS NOT NULL LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class SomeIds:
    """Ids of a type, in order; `or_more` where only so many were read."""

    texts: tuple[str, ...]
    or_more: bool = False

    def __str__(self) -> str:
        return f"{len(self.texts):,}{' or more' if self.or_more else ''}"


def ids_of(numbers: Mapping[Signature, int], type_name: str, most: int = MOST_IDS) -> SomeIds:
    """Return the ids of the type that facts of these signatures mention, MOST_IDS at most of each place."""
    found: set[str] = set()
    or_more = False
    for number, column in places_of(numbers, type_name):
        ids = ids_in(number, column, most + 1)
        or_more |= len(ids) > most
        found.update(ids[:most])
    return SomeIds(tuple(sorted(found)), or_more)


def ids_in(number: int, column: str, most: int) -> list[str]:
    """Return the first `most` ids that facts of a signature have in a column."""
    with connection.cursor() as cursor:
        cursor.execute(_STEPS.format(column=column, condition=index_condition(column)), (number, number, most))
        return [text for (text,) in cursor.fetchall()]


def known_ids(environment_id: int, types: Iterable[str], start: str = "", limit: int = 50) -> dict[str, list[str]]:
    """Return for each type the first ids that begin with `start`, in order; of so many places at most."""
    if "\0" in start:
        return {}
    numbers = signature_numbers(environment_id)
    places = {name: places_of(numbers, name)[:_MOST_PLACES] for name in types}
    ids = beginning(start)
    return {name: sorted(_ids_from(ids, found, limit))[:limit] for name, found in places.items() if found}


def _ids_from(ids: IdRange, places: list[tuple[int, str]], limit: int) -> set[str]:
    found: set[str] = set()
    with connection.cursor() as cursor:
        for number, column in places:
            below = "" if ids.high is None else f" AND {column} < %s"
            bounds: list[int | str] = [number, *([] if ids.high is None else [ids.high])]
            statement = _STEPS_FROM.format(column=column, condition=index_condition(column) + below)
            cursor.execute(statement, [*bounds, ids.low, *bounds, limit])
            found.update(text for (text,) in cursor.fetchall())
    return found
