"""How many facts there are, and the database's statistics of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from facts.keyset_pages import SearchColumn, conditions_of, from_where

MOST = {"sqlite": 500_000, "postgresql": 20_000}  # facts that are counted one by one
_SAMPLE = 300  # pages of the table
_AT_ONCE = 64  # columns that one statement counts


@dataclass(frozen=True, slots=True)
class Count:
    """A number of facts. Where there are more, about how many, as far as that is known."""

    number: int
    more: bool = False
    about: int | None = None

    def __str__(self) -> str:
        if not self.more:
            return f"{self.number:,}"
        return f"more than {self.number:,}" if self.about is None else f"about {_rounded(self.about):,}"

    @property
    def facts(self) -> str:
        """Return the count as part of a sentence."""
        return f"{self} fact{'' if str(self) == '1' else 's'}"


def count(walk: Sequence[SearchColumn], most: int | None = None) -> Count:
    """Return how many facts a walk has."""
    limit = MOST[connection.vendor] if most is None else most
    counted = 0
    for start in range(0, len(walk), _AT_ONCE):
        counted += sum(_counted(walk[start : start + _AT_ONCE], limit - counted + 1))
        if counted > limit:
            about = _estimated(walk) if connection.vendor == "postgresql" else None
            return Count(limit, more=True, about=None if about is None else max(about, limit))
    return Count(counted)


def counts(walk: Sequence[SearchColumn], most: int) -> list[Count]:
    """Return how many facts each column has, counted no further than `most`."""
    found: list[int] = []
    for start in range(0, len(walk), _AT_ONCE):
        found += _counted(walk[start : start + _AT_ONCE], most + 1)
    return [Count(min(number, most), more=number > most) for number in found]


def _counted(some: Sequence[SearchColumn], limit: int) -> list[int]:
    parts, values = [], []
    for number, column in enumerate(some):
        where, of_part = from_where(column)
        parts.append(f"SELECT {number} AS part, COUNT(*) AS number FROM (SELECT 1 {where} LIMIT %s) AS seen{number}")
        values += [*of_part, limit]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts), values)
        found = dict(cursor.fetchall())
    return [found[number] for number in range(len(some))]


def _estimated(walk: Sequence[SearchColumn]) -> int | None:
    """Return the estimate: the walk's share of a sample, times the number of facts by PostgreSQL's statistics."""
    tests, values = [], []
    for column in walk:
        conditions, of_column = conditions_of(column)
        tests.append(f"({conditions})")
        values += of_column
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT reltuples, relpages, pg_relation_size(oid) / current_setting('block_size')::int"
            " FROM pg_class WHERE oid = 'fact'::regclass"
        )
        rows, counted_pages, pages = cursor.fetchone()
        if rows <= 0 or not counted_pages:
            return None
        share = min(100.0, 100.0 * _SAMPLE / max(1, pages))
        cursor.execute(
            f"SELECT COUNT(*) FILTER (WHERE {' OR '.join(tests)}), COUNT(*)"
            f" FROM fact TABLESAMPLE SYSTEM ({share:.6f}) REPEATABLE (1)",
            values,
        )
        met, seen = cursor.fetchone()
    return int(rows / counted_pages * pages * met / seen) if seen else None


def _rounded(number: int) -> int:
    """Round to two significant digits, as the estimate is no better: 12345 -> 12000."""
    unit = 10 ** max(0, len(str(number)) - 2)
    return round(number / unit) * unit
