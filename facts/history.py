"""What changed when: the revisions that began or ended facts, newest first, in pages.

A page holds so many facts, not so many revisions: one revision may be a load of millions. If a revision does not fit,
the next page goes on with it. The history begins after the horizon: what happened before is no longer known whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from django.db import connection

from facts import indexes
from facts.models import COLUMNS, MAX_ARGUMENTS, Row
from facts.numbering import signature_numbers
from facts.read import fact_of_row, matching, read_snapshot
from facts.wire import Argument, Fact
from policy.models import Revision
from policy.revisions import newest_and_horizon
from policy.rules.program import Signature
from policy.values import PRIMITIVES, Value

_NAMES = ", ".join(COLUMNS)
_AT_ONCE = 300  # parts of a statement, three for each signature: SQLite joins 500 at most


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that a revision inserted or deleted, and the end that it then had, in microseconds."""

    row: Row
    fact: Fact
    expires_at: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """What a revision did to the facts asked for. A fact whose end it changed is among the inserted only."""

    revision: Revision
    inserted: tuple[FactChange, ...]
    deleted: tuple[FactChange, ...]


@dataclass(frozen=True, slots=True)
class HistoryCursor:
    """What a page follows: a fact, in the order of rows, among those that a revision changed."""

    revision: int
    row: Row


@dataclass(frozen=True, slots=True)
class History:
    entries: tuple[Entry, ...]
    horizon: int
    more: HistoryCursor | None = None  # what the next page follows


@dataclass(frozen=True, slots=True)
class Span:
    """The revisions that are looked at."""

    after: int
    to: int


# ---- use cases -----------------------------------------------------------------------------------------------

# Pruning moves the horizon before it deletes rows. A horizon from before and rows from after would be a gap.
_IN_ONE_SNAPSHOT = read_snapshot(has_time_limit=True)


@_IN_ONE_SNAPSHOT
def of_pattern(
    environment_id: int,
    predicate: str | None,
    args: Sequence[Argument],
    size: int,
    after: HistoryCursor | None = None,
    to: int | None = None,
) -> History:
    """Return a page of what happened to the facts that begin with these arguments, up to a revision or until now."""
    kinds = matching(signature_numbers(environment_id), predicate, tuple(args), open_ended=True)
    return of_kinds(environment_id, kinds, args, size, after, to)


@_IN_ONE_SNAPSHOT
def of_kinds(
    environment_id: int,
    kinds: Mapping[Signature, int],
    args: Sequence[Argument],
    size: int,
    after: HistoryCursor | None = None,
    to: int | None = None,
) -> History:
    """Return a page of what happened to the facts of these signatures that begin with these ids."""
    latest, horizon = newest_and_horizon(environment_id)
    span = Span(horizon, latest if to is None else min(to, latest))
    return _page(environment_id, kinds, args, size, after, span, horizon)


@_IN_ONE_SNAPSHOT
def of_value(environment_id: int, value: Value, size: int, after: HistoryCursor | None = None) -> History:
    """Return a page of what happened to the facts that mention a value, in whatever argument."""
    kinds = {each: number for each, number in signature_numbers(environment_id).items() if value.type in each.types}
    latest, horizon = newest_and_horizon(environment_id)
    span = Span(horizon, latest)
    changes: list[_Change] = []
    for position in range(MAX_ARGUMENTS):
        here = {each: number for each, number in kinds.items() if each.types[position : position + 1] == (value.type,)}
        args = (*[Argument()] * position, Argument(value.type, value.id))
        changes += _changes(here, args, size + 1, after, span)
    return _paged(environment_id, kinds, changes, size, horizon)


@_IN_ONE_SNAPSHOT
def of_revision(environment_id: int, number: int, size: int, after: HistoryCursor | None = None) -> History:
    """Return a page of what one revision did: one entry, or none where that is not known."""
    horizon = newest_and_horizon(environment_id)[1]
    kinds = signature_numbers(environment_id)
    return _page(environment_id, kinds, (), size, after, Span(max(horizon, number - 1), number), horizon)


# ---- changes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Change:
    revision: int
    row: Row
    began: bool  # else it ended
    expires_at: int | None


def _page(
    environment_id: int,
    kinds: Mapping[Signature, int],
    args: Sequence[Argument],
    size: int,
    after: HistoryCursor | None,
    span: Span,
    horizon: int,
) -> History:
    return _paged(environment_id, kinds, _changes(kinds, args, size + 1, after, span), size, horizon)


def _paged(
    environment_id: int, kinds: Mapping[Signature, int], found: Iterable[_Change], size: int, horizon: int
) -> History:
    changes = _merged(found)
    kept, rest = changes[:size], changes[size:]
    signatures = {number: signature for signature, number in kinds.items()}
    entries = tuple(_entries(environment_id, kept, signatures))
    return History(entries, horizon, HistoryCursor(kept[-1].revision, kept[-1].row) if rest else None)


def _merged(changes: Iterable[_Change]) -> list[_Change]:
    """Sort the changes, newest first. If a revision both ended and began a fact, keep only that it began."""
    begun = sorted(changes, key=lambda each: (-each.revision, each.row, not each.began))
    return [next(same) for _, same in groupby(begun, lambda each: (each.revision, each.row))]


def _entries(environment_id: int, changes: Sequence[_Change], signatures: Mapping[int, Signature]) -> Iterator[Entry]:
    made = revisions(environment_id, {change.revision for change in changes})
    for number, group in groupby(changes, lambda each: each.revision):
        same = list(group)
        if number in made:  # it is dropped, with what it did, while this is read
            inserted, deleted = (
                tuple([_changed(each, signatures) for each in same if each.began is began]) for began in (True, False)
            )
            yield Entry(made[number], inserted, deleted)


def revisions(environment_id: int, numbers: Iterable[int]) -> dict[int, Revision]:
    """Return the revisions that are kept, by number, each with the version that was active from then on."""
    found = Revision.objects.filter(environment_id=environment_id, number__in=list(numbers))
    return {each.number: each for each in found.select_related("policy_version").defer("policy_version__source")}


def _changed(change: _Change, signatures: Mapping[int, Signature]) -> FactChange:
    return FactChange(change.row, fact_of_row(signatures[change.row[0]], change.row[1:]), change.expires_at)


def _changes(
    kinds: Mapping[Signature, int], args: Sequence[Argument], most: int, after: HistoryCursor | None, span: Span
) -> Iterator[_Change]:
    """Yield so many changes at least, as far as there are any, of the first in order.

    What happens to facts of one signature is read by one statement, and so as of one moment: a fact that is deleted
    meanwhile is there once. Of revisions before this, nothing but that changes.
    """
    parts = [
        _part(table, column, kind, args, most, after, span)
        for kind in kinds.items()
        for table, column in (("fact", "since"), ("past_fact", "since"), ("past_fact", "until"))
    ]
    for start in range(0, len(parts), _AT_ONCE):
        some = parts[start : start + _AT_ONCE]
        statement = " UNION ALL ".join(f"SELECT * FROM ({sql}) AS part{index}" for index, (sql, _) in enumerate(some))
        with connection.cursor() as cursor:
            cursor.execute(statement, [value for _, values in some for value in values])
            for revision, began, expires_at, *row in cursor.fetchall():
                yield _Change(revision, tuple(row), bool(began), expires_at)


def _part(
    table: str,
    column: str,
    kind: tuple[Signature, int],
    args: Sequence[Argument],
    most: int,
    after: HistoryCursor | None,
    span: Span,
) -> tuple[str, list[str | int]]:
    """Return the statement that reads the first changes of a signature's facts, of one sort, and its values."""
    signature, number = kind
    leading = _leading(signature, args)
    # By ids, only those of past facts that ended are found in the order of revisions. The others are found by their
    # ids, and then sorted: an expression keeps both databases from walking through all that the signature had.
    is_sorted = leading is None or column == "until"
    at = column if is_sorted else f"({column} + 0)"
    conditions = "".join(f" AND {name} = %s" for name, arg in zip(COLUMNS, args) if arg.id is not None)
    to = min(span.to, after.revision) if after else span.to
    ids = [arg.id for arg in args if arg.id is not None]
    if leading is None and to == span.after + 1:
        return _part_of_one(table, column, number, most, after, to)
    beyond, values = _beyond(at, number, after)
    hint, partial = _found_by(table, leading)
    statement = (
        f"SELECT {column} AS revision, {int(column == 'since')} AS began, expires_at, sig, {_NAMES}"
        f" FROM {table}{hint} WHERE sig = {int(number)}{conditions}{partial}"
        f" AND {at} > %s AND {at} <= %s{beyond} ORDER BY {at} DESC, {_NAMES} LIMIT %s"
    )
    return statement, [*ids, span.after, to, *values, most]


def _part_of_one(
    table: str, column: str, number: int, most: int, after: HistoryCursor | None, revision: int
) -> tuple[str, list[str | int]]:
    """Return the same of one revision: in the order of rows, as the index has them, however many there are."""
    ids_after: tuple[str, ...] = ()
    beyond = ""
    if after is not None and after.revision == revision and number <= after.row[0]:
        beyond, ids_after = f" AND ({_NAMES}) > (%s, %s, %s, %s, %s)", after.row[1:]
        if number < after.row[0]:
            beyond, ids_after = " AND 1 = 0", ()
    hint = indexes.hint(table, column) if connection.vendor == "sqlite" else ""
    statement = (
        f"SELECT {column} AS revision, {int(column == 'since')} AS began, expires_at, sig, {_NAMES}"
        f" FROM {table}{hint} WHERE sig = {int(number)} AND {column} = %s{beyond} ORDER BY {_NAMES} LIMIT %s"
    )
    return statement, [revision, *ids_after, most]


def _leading(signature: Signature, args: Sequence[Argument]) -> str | None:
    """Return the column to find the facts by: of those whose ids are given, the first that is no name or number."""
    given = [
        (name in PRIMITIVES, column) for column, name, arg in zip(COLUMNS, signature.types, args) if arg.id is not None
    ]
    return min(given)[1] if given else None


def _found_by(table: str, leading: str | None) -> tuple[str, str]:
    """Return what follows the table's name, and what is said again of the column, for its index to be used."""
    hint = indexes.hint(table, leading) if connection.vendor == "sqlite" else ""
    partial = indexes.condition(table, leading)
    return hint, f" AND {partial}" if partial else ""


def _beyond(at: str, number: int, after: HistoryCursor | None) -> tuple[str, tuple[str | int, ...]]:
    """Return the condition that a change comes after the cursor; that it is none of later revisions is said already."""
    if after is None or number > after.row[0]:
        return "", ()
    if number < after.row[0]:
        return f" AND {at} < %s", (after.revision,)
    following = f"({_NAMES}) > (%s, %s, %s, %s, %s)"
    return f" AND ({at} < %s OR {following})", (after.revision, *after.row[1:])
