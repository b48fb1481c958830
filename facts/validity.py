"""The periods in which facts were stored: since when and by whom, and until when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from django.db import connection

from facts import indexes
from facts.models import COLUMNS, Row
from policy.clock import time_of
from policy.models import Environment, Revision

_KEY = ", ".join(("sig", *COLUMNS))
_WANTED = " AND ".join(f"{name} = wanted.column{place}" for place, name in enumerate(("sig", *COLUMNS), 1))
_AT_ONCE = 400  # facts that one statement looks for


@dataclass(frozen=True, slots=True)
class Mark:
    """A revision at which a fact began or ended. If the revision was pruned, only its number is known.

    Without a number: the fact began before revisions were kept; `before` is then the oldest revision that is known.
    """

    revision: int | None
    at: int | None = None  # microseconds
    author: str = ""
    kind: str = ""
    before: int | None = None


@dataclass(frozen=True, slots=True)
class ValidityPeriod:
    """A period in which a fact was stored. Without `until` it still is, or it has ended and is not swept yet."""

    since: Mark
    until: Mark | None
    expires_at: int | None  # microseconds


@dataclass(frozen=True, slots=True)
class _Found:
    since: int
    until: int | None
    expires_at: int | None

    def as_of(self, revision: int) -> _Found:
        """Return the same as of a revision: leave `until` out if it is later."""
        return self if self.until is None or self.until <= revision else replace(self, until=None)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(number for number in (self.since, self.until) if number)


def latest_periods(environment_id: int, rows: Sequence[Row], revision: int | None = None) -> dict[Row, ValidityPeriod]:
    """Return the last time that each of these facts of the environment was there, if it ever was.

    As of a revision: the last one that had begun by then. Takes at most two statements for 400 facts, and two more.
    """
    found = dict(_latest("fact", "NULL", rows, revision))
    found |= dict(_latest("past_fact", "until", [row for row in rows if row not in found], revision))
    if revision is not None:
        found = {row: each.as_of(revision) for row, each in found.items()}
    marks = _marks(environment_id, {number for each in found.values() for number in each.numbers})
    horizon = _horizon(environment_id) if any(not each.since for each in found.values()) else 0
    return {row: _period(each, marks, horizon) for row, each in found.items()}


def _latest(table: str, until: str, rows: Sequence[Row], revision: int | None) -> Iterator[tuple[Row, _Found]]:
    begun = "" if revision is None else " AND since <= %s"
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        keys = ", ".join(f"({int(row[0])}, %s, %s, %s, %s, %s)" for row in some)
        ranked = (
            f"SELECT {_KEY}, since, {until} AS until, expires_at,"
            f" ROW_NUMBER() OVER (PARTITION BY {_KEY} ORDER BY since DESC) AS place"
            f" FROM (VALUES {keys}) AS wanted CROSS JOIN {table}{_by_first(table)} WHERE {_WANTED}{begun}"
        )
        values = [value for row in some for value in row[1:]] + ([] if revision is None else [revision])
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {_KEY}, since, until, expires_at FROM ({ranked}) AS ranked WHERE place = 1", values)
            for row in cursor.fetchall():
                yield row[:-3], _Found(*row[-3:])


def _by_first(table: str) -> str:
    """Return a hint for SQLite: for past facts it would choose the index on a1, where names have many facts each."""
    return indexes.hint(table, "a0") if connection.vendor == "sqlite" else ""


def _marks(environment_id: int, numbers: set[int]) -> dict[int, Mark]:
    if not numbers:
        return {}
    found = Revision.objects.filter(environment_id=environment_id, number__in=numbers)
    return {each[0]: Mark(*each) for each in found.values_list("number", "at", "author", "kind")}


def _horizon(environment_id: int) -> int:
    return Environment.objects.values_list("horizon", flat=True).get(pk=environment_id)


def _period(found: _Found, marks: dict[int, Mark], horizon: int) -> ValidityPeriod:
    since = marks.get(found.since, Mark(found.since)) if found.since else Mark(None, before=max(horizon, 1))
    return ValidityPeriod(since, marks.get(found.until, Mark(found.until)) if found.until else None, found.expires_at)


# ---- as sentences ----------------------------------------------------------------------------------------------


def since_text(period: ValidityPeriod) -> str:
    """Say since when a fact is there: `since 2026-11-03 14:02 by key 3 "billing" (revision 481), until 2026-12-01`."""
    return f"{_since(period.since)}{f', until {shown_end(period.expires_at)}' if period.expires_at is not None else ''}"


def until_text(period: ValidityPeriod) -> str:
    """Say until when it was: `was there until revision 512, 2026-11-09 08:30, deleted by admin ann`."""
    mark, end = period.until, period.expires_at
    if end is not None and (mark is None or (mark.at is not None and end <= mark.at)):
        return f"was there until {shown_end(end)}, when it ended"
    assert mark is not None, "what is stored and does not hold has come to its end"
    when = f"was there until revision {mark.revision}{f', {minute(mark.at)}' if mark.at is not None else ''}"
    return f"{when}, deleted by {mark.author}" if mark.author else when


def _since(mark: Mark) -> str:
    if mark.revision is None:
        return f"since before revision {mark.before}"
    if mark.at is None:
        return f"since revision {mark.revision}"
    by = f" by {mark.author}" if mark.author else ""
    return f"since {minute(mark.at)}{by} (revision {mark.revision})"


def minute(microseconds: int) -> str:
    return f"{time_of(microseconds):%Y-%m-%d %H:%M}"


def shown_end(microseconds: int) -> str:
    """Return the day, and the minute unless the fact ends as the day begins."""
    time = time_of(microseconds)
    return f"{time:%Y-%m-%d}" if (time.hour, time.minute) == (0, 0) else f"{time:%Y-%m-%d %H:%M}"
