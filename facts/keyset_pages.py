"""Keyset pagination of stored facts, the number of facts, and the ids that they mention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection

from facts.models import COLUMNS, PAST, ROW_LENGTH, STORED, Row, Signature, condition
from facts.numbering import Numbered, signature_numbers
from facts.read import fact_of_row, places_of
from facts.table import IDS, KEY, distinct_ids, fact_table, fetch, held, lasting, of_signatures, select
from facts.wire import Fact
from policy.core.pagination import Cursor, Listing
from policy.moments import Moment
from policy.rules import program

# ---- Pages of stored facts, forwards and backwards, by the keys of their first and last rows ----------------------

PAGE = 100  # facts
# The order of facts in a column: that of the column's index, so that no page has to be sorted.
ORDERS = {
    "a0": ("a0", "a1", "a2", "a3", "a4"),
    "a1": ("a1", "a0", "a2", "a3", "a4"),
    "a2": ("a2", "a1", "a0", "a3", "a4"),
    "a3": ("a3", "a2", "a1", "a0", "a4"),
    "a4": ("a4", "a3", "a2", "a1", "a0"),
}
_LAST = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)
_MOST_AT_ONCE = 64  # columns that one statement reads; the first statements read fewer, as they often fill the page


# ---- which ids ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids from `low` up to `high`, or below `high` if the range is `open`. They are compared byte by byte."""

    low: str
    high: str | None
    open: bool = False


EVERY = IdRange("", None)


def exactly(text: str) -> IdRange:
    return IdRange(text, text)


def beginning(text: str) -> IdRange:
    """Return the range of ids that begin with the text."""
    return IdRange(text, _after_all(text), open=True) if text else EVERY


def _after_all(text: str) -> str | None:
    """Return the first text after all that begin with this one; None if there is none."""
    rest = text.rstrip(_LAST)
    if not rest:
        return None
    code = ord(rest[-1]) + 1
    return rest[:-1] + chr(_SURROGATES.stop if code in _SURROGATES else code)


# ---- which columns -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchColumn:
    """Where ids are searched: an argument of a signature. Facts that also match in an `earlier` one are shown there."""

    kind: Signature
    position: int
    ids: IdRange = EVERY
    earlier: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return COLUMNS[self.position]

    @property
    def key(self) -> tuple[int, int]:
        return self.kind.pk, self.position

    @property
    def name_in_urls(self) -> str:
        return f"{self.kind.pk}.{self.position}"

    @property
    def order(self) -> tuple[str, ...]:
        """Return the columns by which its facts are sorted."""
        return ORDERS[self.name]

    def sorted_by(self, met: PagedFact) -> tuple[str, ...]:
        """Return the sort key. Python compares texts by code point, which is the databases' order of UTF-8 bytes."""
        ids = dict(zip(COLUMNS, met.row[1:]))
        return tuple(ids[name] for name in self.order)


def search_columns(kinds: Iterable[Signature], ids: IdRange = EVERY, type_name: str = "") -> list[SearchColumn]:
    """Return where facts of these signatures may have such ids, in their order; only of the type, if one is given."""
    if ids == EVERY:
        return [SearchColumn(kind, 0) for kind in kinds]
    found = []
    for kind in kinds:
        fitting = [at for at, name in enumerate(kind.signature.types) if type_name in ("", name)]
        found += [SearchColumn(kind, at, ids, tuple(fitting[:number])) for number, at in enumerate(fitting)]
    return found


# ---- pages ---------------------------------------------------------------------------------------------------------


MARKS = "facts"  # what the cursors of facts are of


class Mark(NamedTuple):
    """The position of a fact on a walk: its column, and its row."""

    column: tuple[int, int]
    row: Row

    @classmethod
    def of(cls, key: Any) -> Mark | None:
        """Return the mark in a cursor; None if it has none."""
        return None if key is None else cls(tuple(key[0]), tuple(key[1]))


@dataclass(frozen=True, slots=True)
class PagedFact:
    column: SearchColumn
    row: Row
    fact: Fact

    @property
    def mark(self) -> Mark:
        return Mark(self.column.key, self.row)

    @property
    def token(self) -> str:
        return Cursor(MARKS, self.mark).token


def listing(walk: Sequence[SearchColumn]) -> Listing[PagedFact]:
    """Return the facts on a walk as a list in pages, by marks whose columns are on the walk."""
    places = {column.key: place for place, column in enumerate(walk)}

    def after(mark: Mark | None, most: int) -> list[PagedFact]:
        return _met(walk[places[mark.column] if mark else 0 :], mark, most, forward=True)

    def before(mark: Mark, most: int) -> list[PagedFact]:
        return _met(walk[places[mark.column] :: -1], mark, most, forward=False)[::-1]

    return Listing(after, before)


def every(walk: Sequence[SearchColumn]) -> Iterator[Fact]:
    """Yield all facts of the walk, one at a time."""
    for column in walk:
        statement, values = _statement(column, None, None, True)
        for row in fact_table().stream(statement, values):
            yield _fact(column, row)


def _fact(column: SearchColumn, row: Sequence[Any]) -> Fact:
    return fact_of_row(column.kind.signature, row[1:ROW_LENGTH], row[ROW_LENGTH])


def _met(walk: Sequence[SearchColumn], mark: Mark | None, wanted: int, forward: bool) -> list[PagedFact]:
    """Return at most `wanted` facts, column by column; the mark, if given, is in the first column."""
    found: list[PagedFact] = []
    at, some = 0, 1
    while at < len(walk) and len(found) < wanted:
        group = walk[at : at + some]
        found += _of_group(group, mark if at == 0 else None, wanted - len(found), forward)
        at, some = at + some, min(some * 4, _MOST_AT_ONCE)
    return found[:wanted]


def _of_group(group: Sequence[SearchColumn], mark: Mark | None, limit: int, forward: bool) -> Iterator[PagedFact]:
    parts, values = [], []
    for number, column in enumerate(group):
        statement, of_part = _statement(column, mark, limit, forward)
        parts.append(f"SELECT {number} AS part, found{number}.* FROM ({statement}) AS found{number}")
        values += of_part
    rows = fetch(" UNION ALL ".join(parts), values)
    for number, column in enumerate(group):
        # SQL does not guarantee that UNION ALL keeps the order.
        of_column = [
            PagedFact(column, row[1 : ROW_LENGTH + 1], _fact(column, row[1:])) for row in rows if row[0] == number
        ]
        yield from sorted(of_column, key=column.sorted_by, reverse=not forward)


def _statement(column: SearchColumn, mark: Mark | None, limit: int | None, forward: bool) -> tuple[str, list[Any]]:
    """Return the SELECT of a column's facts in its order, and its parameters."""
    conditions, values = conditions_of(column, mark, forward)
    ordered = ", ".join(f"{name}{'' if forward else ' DESC'}" for name in column.order)
    return select(f"{KEY}, expires_at", conditions, by=column.name, order=ordered, limit=limit), values


def conditions_of(column: SearchColumn, mark: Mark | None = None, forward: bool = True) -> tuple[str, list[Any]]:
    """Return the condition for facts in the column, in no earlier one, and beyond the mark, with its parameters.

    The mark replaces the bound on its side: with both, SQLite might start its search at the bound. A single id is
    written as a range too: with `=`, PostgreSQL would scan all facts of the signature in key order.
    """
    order = column.order
    tests, values = [f"sig = {int(column.kind.pk)}"], []
    if column.ids.low and (mark is None or not forward):
        tests.append(f"{column.name} >= %s")
        values.append(column.ids.low)
    if column.ids.high is not None and (mark is None or forward):
        tests.append(f"{column.name} {'<' if column.ids.open else '<='} %s")
        values.append(column.ids.high)
    if mark is not None:
        ids = dict(zip(COLUMNS, mark.row[1:]))
        tests.append(f"({', '.join(order)}) {'>' if forward else '<'} ({', '.join(['%s'] * len(order))})")
        values += [ids[name] for name in order]
    for position in column.earlier:
        test, of_test = _within(COLUMNS[position], column.ids)
        tests.append(f"({test}) IS NOT TRUE")  # with NOT, PostgreSQL would search below and above the range
        values += of_test
    tests += [lasting()] if column.kind.may_end else []
    return " AND ".join(tests), values


def _within(column: str, ids: IdRange) -> tuple[str, list[str]]:
    if ids.high is None:
        return f"{column} >= %s", [ids.low]
    return f"{column} >= %s AND {column} {'<' if ids.open else '<='} %s", [ids.low, ids.high]


# ---- The number of facts, exact or estimated -----------------------------------------------------------------------

MOST = {"sqlite": 500_000, "postgresql": 20_000}  # facts that are counted exactly
_AT_ONCE = 64  # columns that one statement counts
_SAMPLE = 300  # pages of the table


@dataclass(frozen=True, slots=True)
class Count:
    """A number of facts. If there are more, an estimate of how many, if available."""

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
    """Return how many facts each column has, counting up to `most`."""
    found: list[int] = []
    for start in range(0, len(walk), _AT_ONCE):
        found += _counted(walk[start : start + _AT_ONCE], most + 1)
    return [Count(min(number, most), more=number > most) for number in found]


def _counted(some: Sequence[SearchColumn], limit: int) -> list[int]:
    parts, values = [], []
    for number, column in enumerate(some):
        conditions, of_part = conditions_of(column)
        some_of_them = select("1", conditions, by=column.name, limit=int(limit))
        parts.append(f"SELECT {number} AS part, COUNT(*) AS number FROM ({some_of_them}) AS seen{number}")
        values += of_part
    found = dict(fetch(" UNION ALL ".join(parts), values))
    return [found[number] for number in range(len(some))]


def _estimated(walk: Sequence[SearchColumn]) -> int | None:
    """Return an estimate: the walk's share of a sample, times the number of facts by PostgreSQL's statistics."""
    ((rows, counted_pages, pages),) = fetch(
        "SELECT reltuples, relpages, pg_relation_size(oid) / current_setting('block_size')::int"
        f" FROM pg_class WHERE oid = '{STORED}'::regclass"
    )
    if rows <= 0 or not counted_pages:
        return None
    tests, values = [], []
    for column in walk:
        conditions, of_column = conditions_of(column)
        tests.append(f"({conditions})")
        values += of_column
    share = min(100.0, 100.0 * _SAMPLE / max(1, pages))
    sample = f"TABLESAMPLE SYSTEM ({share:.6f}) REPEATABLE (1)"
    ((met, seen),) = fetch(select(f"COUNT(*) FILTER (WHERE {' OR '.join(tests)}), COUNT(*)", alias=sample), values)
    return int(rows / counted_pages * pages * met / seen) if seen else None


def _rounded(number: int) -> int:
    """Round to two significant digits, as the estimate is no better: 12345 -> 12000."""
    unit = 10 ** max(0, len(str(number)) - 2)
    return round(number / unit) * unit


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


def ids_of(numbers: Mapping[program.Signature, int], type_name: str) -> SomeIds:
    """Return the ids of the type that facts of these signatures mention, at most MOST_IDS from each column."""
    found: set[str] = set()
    or_more = False
    for number, column in places_of(numbers, type_name):
        ids = ids_in(number, column, MOST_IDS + 1)
        or_more |= len(ids) > MOST_IDS
        found.update(ids[:MOST_IDS])
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

    numbers: Mapping[program.Signature, int]
    type: str
    moments: Sequence[Moment]

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

    signature: program.Signature
    rows: tuple[tuple[str, ...], ...] | None

    def ids(self, place: int) -> frozenset[str] | None:
        return None if self.rows is None else frozenset(row[place] for row in self.rows)


def changed_facts_between(known: Numbered, first: Moment, last: Moment) -> list[ChangedFacts]:
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


def _changes(number: int, first: Moment, last: Moment, may_end: bool) -> str:
    between = f"BETWEEN {int(first.revision) + 1} AND {int(last.revision)}"
    arms = [(STORED, f"since {between}"), (PAST, f"since {between}"), (PAST, f"until {between}")]
    if may_end:
        ended = f"expires_at BETWEEN {int(first.at) + 1} AND {int(last.at)}"
        arms += [(STORED, ended), (PAST, f"until > {int(last.revision)} AND {ended}")]
    selects = (select(IDS, f"sig = {int(number)}", test, table=table) for table, test in arms)
    return f"{' UNION '.join(selects)} LIMIT {MOST_CHANGES + 1}"
