"""The ids that facts mention, now or as of earlier moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db import connection

from facts.indexes import PAST, STORED, condition
from facts.keyset_pages import IdRange, beginning
from facts.numbering import Numbered, signature_numbers
from facts.read import Then, places_of
from facts.table import IDS, distinct_ids, fetch, held, of_signatures, select
from policy.rules.program import Signature

# ---- mentioned ids ------------------------------------------------------------------------------------------------
# The ids that stored facts mention, by type, to choose from. They are read from indexes, never from all facts.

MOST_IDS = 20_000  # per type
_MOST_PLACES = 40  # per type


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
    statement = distinct_ids(column, "sig = %s", condition(STORED, column))
    return [text for (text,) in fetch(statement, (number, number, most))]


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
    for number, column in places:
        below = "" if ids.high is None else f"{column} < %s"
        bounds: list[int | str] = [number, *([] if ids.high is None else [ids.high])]
        tests = ("sig = %s", condition(STORED, column), below)
        statement = distinct_ids(column, *tests, start=f"{column} >= %s")
        found.update(text for (text,) in fetch(statement, [*bounds, ids.low, *bounds, limit]))
    return found


# ---- Ids that facts mentioned as of earlier moments, and facts that changed between two of them --------------------
# Ids come in order, in batches: the memory needed does not grow with the number of facts.

MOST_CHANGES = 5_000  # changes read per signature; beyond it, only that there are more

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
        for column, selected in self._selects("{column} > %s", "DISTINCT {column}"):
            found.update(row[0] for row in fetch(f"{selected} ORDER BY {column} LIMIT %s", (text, most)))
        return sorted(found)[:most]

    def containing(self, most: int, read: Callable[[str], Iterable[Sequence[str]]]) -> list[str]:
        """Return ids that contain a text, at most `most`.

        `read` executes each statement with the text as its `%s`, and limits the time: all ids are read.
        """
        found: set[str] = set()
        test = "instr({column}, %s) > 0" if connection.vendor == "sqlite" else "strpos({column}, %s) > 0"
        for _, selected in self._selects(test, "DISTINCT {column}"):
            found.update(row[0] for row in read(f"{selected} LIMIT {int(most)}"))
        return sorted(found)[:most]

    def has(self, text: str) -> bool:
        """Return whether a fact mentions the id."""
        return any(fetch(f"{selected} LIMIT 1", (text,)) for _, selected in self._selects("{column} = %s", "1"))

    def _selects(self, wanted: str, selected: str) -> Iterator[tuple[str, str]]:
        """Yield the SELECT for each column that may contain the ids, with the column."""
        for number, column in places_of(self.numbers, self.type):
            for table in (STORED, PAST):
                at_any = " OR ".join(
                    f"({held(table, moment.revision, moment.at, 'until + 0')})" for moment in self.moments
                )
                tests = (f"sig = {int(number)}", wanted.format(column=column), f"({at_any})")
                yield column, select(selected.format(column=column), *tests, table=table, by=column)


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
    for signature, number in known.numbers.items():
        changes = fetch(_changes(number, first, last, signature in known.ending))
        rows = tuple([row[: len(signature.types)] for row in changes])
        if rows:
            found.append(ChangedFacts(signature, rows if len(rows) <= MOST_CHANGES else None))
    return found


def any_ends(known: Numbered, first: int, last: int) -> bool:
    """Return whether a stored fact expires after the first time and up to the last, in microseconds."""
    numbers = [number for signature, number in known.numbers.items() if signature in known.ending]
    if not numbers:
        return False
    between = f"expires_at IS NOT NULL AND expires_at BETWEEN {int(first) + 1} AND {int(last)}"
    return bool(fetch(select("1", between, of_signatures(numbers), by="expires_at", limit=1)))


def _changes(number: int, first: Then, last: Then, may_end: bool) -> str:
    between = f"BETWEEN {int(first.revision) + 1} AND {int(last.revision)}"
    arms = [(STORED, f"since {between}"), (PAST, f"since {between}"), (PAST, f"until {between}")]
    if may_end:
        ended = f"expires_at BETWEEN {int(first.at) + 1} AND {int(last.at)}"
        arms += [(STORED, ended), (PAST, f"until > {int(last.revision)} AND {ended}")]
    selects = (select(IDS, f"sig = {int(number)}", test, table=table) for table, test in arms)
    return f"{' UNION '.join(selects)} LIMIT {MOST_CHANGES + 1}"
