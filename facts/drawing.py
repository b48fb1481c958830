"""Values that stored facts mention, for whoever needs some to ask about. Indexes are looked into, never all facts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from django.db import connection

from facts.models import COLUMNS, INDEX_CONDITIONS
from facts.read import fact_of_row
from facts.wire import Fact
from policy.rules.program import Signature
from policy.values import Value

MOST_IDS = 20_000  # of a type
_NAMES = ", ".join(COLUMNS)

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
        for number, column in _places(numbers, type_name):
            statement = _STEPS.format(column=column, condition=_condition(column))
            cursor.execute(statement, (number, number, most + 1))
            ids = [text for (text,) in cursor.fetchall()]
            or_more |= len(ids) > most
            found.update(ids[:most])
    return Ids(tuple(sorted(found)), or_more)


def facts_about(numbers: Mapping[Signature, int], value: Value, most: int) -> Iterator[Fact]:
    """Facts that mention the value: so many at most for each place where it may stand."""
    by_number = {number: signature for signature, number in numbers.items()}
    with connection.cursor() as cursor:
        for number, column in _places(numbers, value.type):
            condition = f"sig = %s AND {column} = %s{_condition(column)}"
            cursor.execute(f"SELECT {_NAMES} FROM fact WHERE {condition} LIMIT %s", (number, value.id, most))
            yield from [fact_of_row(by_number[number], row) for row in cursor.fetchall()]


def more_than(most: int, numbers: Iterable[int]) -> bool:
    """Whether there are more facts than that of the signatures with these numbers."""
    listed = ", ".join(str(int(number)) for number in numbers) or "NULL"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM (SELECT 1 FROM fact WHERE sig IN ({listed}) LIMIT %s) seen", (most + 1,))
        return cursor.fetchone()[0] > most


def _places(numbers: Mapping[Signature, int], type_name: str) -> list[tuple[int, str]]:
    return [
        (number, column)
        for signature, number in numbers.items()
        for column, name in zip(COLUMNS, signature.types)
        if name == type_name
    ]


def _condition(column: str) -> str:
    return f" AND {INDEX_CONDITIONS[column]}" if column in INDEX_CONDITIONS else ""
