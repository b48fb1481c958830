"""The ids that facts mention, now or as of earlier moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db import connection

from facts.indexes import PAST, STORED, condition, hint
from facts.keyset_pages import IdRange, beginning
from facts.models import COLUMNS
from facts.numbering import Numbered, signature_numbers
from facts.read import Then, index_condition, places_of
from policy.rules.program import Signature

# ---- mentioned ids ------------------------------------------------------------------------------------------------
# The ids that stored facts mention, by type, to choose from. They are read from indexes, never from all facts.

MOST_IDS = 20_000  # per type
_MOST_PLACES = 40  # per type

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
    """Ids of a type, in order; `or_more` if the limit was reached."""

    texts: tuple[str, ...]
    or_more: bool = False

    def __str__(self) -> str:
        return f"{len(self.texts):,}{' or more' if self.or_more else ''}"


def ids_of(numbers: Mapping[Signature, int], type_name: str, most: int = MOST_IDS) -> SomeIds:
    """Return the ids of the type that facts of these signatures mention, at most MOST_IDS from each column."""
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
    """Return, for each type, the first ids that begin with `start`, in order; from at most `_MOST_PLACES` columns."""
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


# ---- Ids that facts mentioned as of earlier moments, and facts that changed between two of them --------------------
# Ids come in order, in batches: the memory needed does not grow with the number of facts.

MOST_CHANGES = 5_000  # changes read per signature; beyond it, only that there are more

_NAMES = ", ".join(COLUMNS)


# ---- ids ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MentionedAsOf:
    """The ids of a type that facts mention, among those that held at any of some moments."""

    numbers: Mapping[Signature, int]
    type: str
    moments: Sequence[Then]

    def after(self, text: str, most: int) -> list[str]:
        """Return the ids that follow a text, at most `most`."""
        found: set[str] = set()
        with connection.cursor() as cursor:
            for column, selected in self._selects("{column} > %s"):
                cursor.execute(f"SELECT DISTINCT {selected} ORDER BY {column} LIMIT %s", (text, most))
                found.update(row[0] for row in cursor.fetchall())
        return sorted(found)[:most]

    def containing(self, most: int, read: Callable[[str], Iterable[Sequence[str]]]) -> list[str]:
        """Return ids that contain a text, at most `most`.

        `read` executes each statement with the text as its `%s`, and limits the time: all ids are read.
        """
        found: set[str] = set()
        test = "instr({column}, %s) > 0" if connection.vendor == "sqlite" else "strpos({column}, %s) > 0"
        for _, selected in self._selects(test):
            found.update(row[0] for row in read(f"SELECT DISTINCT {selected} LIMIT {int(most)}"))
        return sorted(found)[:most]

    def has(self, text: str) -> bool:
        """Return whether a fact mentions the id."""
        with connection.cursor() as cursor:
            for _, selected in self._selects("{column} = %s"):
                cursor.execute(f"SELECT 1 FROM (SELECT {selected}) seen LIMIT 1", (text,))
                if cursor.fetchone():
                    return True
        return False

    def _selects(self, wanted: str) -> Iterator[tuple[str, str]]:
        """Yield the SELECT for each column that may contain the ids, with the column."""
        for number, column in places_of(self.numbers, self.type):
            for table in (STORED, PAST):
                named = f"{table}{hint(table, column)}" if connection.vendor == "sqlite" else table
                needed = condition(table, column)
                tests = [f"sig = {int(number)}", wanted.format(column=column), *([needed] if needed else [])]
                held = " OR ".join(_held(table, moment) for moment in self.moments)
                yield column, f"{column} FROM {named} WHERE {' AND '.join(tests)} AND ({held})"


def _held(table: str, moment: Then) -> str:
    revision, at = int(moment.revision), int(moment.at)
    held = f"since + 0 <= {revision} AND (expires_at IS NULL OR expires_at > {at})"
    return f"({held} AND until + 0 > {revision})" if table == PAST else f"({held})"


# ---- changes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangedFacts:
    """Facts of a signature, including all that hold at only one of two moments. `rows`: their ids; None: too many."""

    signature: Signature
    rows: tuple[tuple[str, ...], ...] | None

    def ids(self, place: int) -> frozenset[str] | None:
        return None if self.rows is None else frozenset(row[place] for row in self.rows)


def changed_facts_between(known: Numbered, first: Then, last: Then) -> list[ChangedFacts]:
    """Return, for each signature, the facts that began or ended after the first moment, and up to the last."""
    found = []
    with connection.cursor() as cursor:
        for signature, number in known.numbers.items():
            cursor.execute(_changes(number, first, last, signature in known.ending))
            rows = [row[: len(signature.types)] for row in cursor.fetchall()]
            if rows:
                found.append(ChangedFacts(signature, tuple(rows) if len(rows) <= MOST_CHANGES else None))
    return found


def any_ends(known: Numbered, first: int, last: int) -> bool:
    """Return whether a stored fact expires after the first time and up to the last, in microseconds."""
    numbers = [int(number) for signature, number in known.numbers.items() if signature in known.ending]
    if not numbers:
        return False
    named = f"{STORED} INDEXED BY fact_expires_at" if connection.vendor == "sqlite" else STORED
    tests = f"expires_at IS NOT NULL AND expires_at BETWEEN {int(first) + 1} AND {int(last)}"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {named} WHERE {tests} AND sig IN ({', '.join(map(str, numbers))}) LIMIT 1")
        return cursor.fetchone() is not None


def _changes(number: int, first: Then, last: Then, may_end: bool) -> str:
    between = f"BETWEEN {int(first.revision) + 1} AND {int(last.revision)}"
    arms = [(STORED, f"since {between}"), (PAST, f"since {between}"), (PAST, f"until {between}")]
    if may_end:
        ended = f"expires_at BETWEEN {int(first.at) + 1} AND {int(last.at)}"
        arms += [(STORED, ended), (PAST, f"until > {int(last.revision)} AND {ended}")]
    selects = (f"SELECT {_NAMES} FROM {table} WHERE sig = {int(number)} AND {test}" for table, test in arms)
    return f"{' UNION '.join(selects)} LIMIT {MOST_CHANGES + 1}"
