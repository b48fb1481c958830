"""Ids that stored facts mention, by type: for whoever has to pick one. A look at an index, never at all facts."""

from collections.abc import Iterable

from django.db import connection

from facts.models import COLUMNS, INDEX_CONDITIONS
from facts.signatures import signature_numbers

LOOKED_AT = 200  # facts for each place in a signature
_MOST_PLACES = 40  # of a type


def known_ids(environment_id: int, types: Iterable[str], start: str = "", limit: int = 50) -> dict[str, list[str]]:
    """For each type some ids that begin with `start`, in order; those of the places that are looked at first."""
    wanted = set(types)
    places: dict[str, list[tuple[int, str]]] = {}
    for signature, number in signature_numbers(environment_id).items():
        for column, name in zip(COLUMNS, signature.types):
            if name in wanted and len(places.setdefault(name, [])) < _MOST_PLACES:
                places[name].append((number, column))
    return {name: sorted(_ids(found, start))[:limit] for name, found in places.items()}


def _ids(places: list[tuple[int, str]], start: str) -> set[str]:
    found: set[str] = set()
    with connection.cursor() as cursor:
        for number, column in places:
            condition = f" AND {INDEX_CONDITIONS[column]}" if column in INDEX_CONDITIONS else ""
            cursor.execute(
                f"SELECT {column} FROM fact WHERE sig = %s AND {column} >= %s{condition} ORDER BY {column} LIMIT %s",
                (number, start, LOOKED_AT),
            )
            found.update(text for (text,) in cursor.fetchall() if text.startswith(start))
    return found
