"""What changed when: revisions and the facts that they began or ended, in pages; and what becomes of them in time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models import QuerySet

from facts import read
from facts.models import COLUMNS, MAX_ARGUMENTS, PAST, STORED, Row
from facts.models import Signature as StoredSignature
from facts.numbering import environments_with_ends, numbers_as_of, signature_numbers
from facts.read import fact_of_row, id_conditions, matching, read_snapshot
from facts.table import IDS, KEY, delete, ended, execute, fact_table, fetch, ids_are, of_signatures, select
from facts.wire import Argument, Fact, FactPattern
from policy.core.clock import new_moment, now_in, time_of
from policy.core.config import settings
from policy.core.journal import By, Done, Kind, advance, changing, newest_and_horizon, record, refuse_copy
from policy.errors import IsCopy, Moved, NotFound, Unavailable
from policy.models import Environment, Revision
from policy.rules.program import Signature
from policy.values import PRIMITIVES, Value

# ---- What changed when: the revisions that began or ended facts, newest first, in pages ---------------------------
# A page is limited by its number of facts, not of revisions: one revision may be a load of millions. If a revision does
# not fit, the next page continues it. The history begins after the horizon: earlier history is incomplete.

_AT_ONCE = 300  # parts of a statement, three for each signature: SQLite allows 500 in a UNION


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that a revision inserted or deleted, with the expiry that it then had."""

    row: Row
    fact: Fact


@dataclass(frozen=True, slots=True)
class Entry:
    """A revision's changes of the requested facts. A fact whose expiry it changed is among the inserted only."""

    revision: Revision
    inserted: tuple[FactChange, ...]
    deleted: tuple[FactChange, ...]


class HistoryKey(NamedTuple):
    """Where a page continues: after a fact, in row order, among those that a revision changed."""

    revision: int
    row: Row

    @classmethod
    def of(cls, key: Any) -> HistoryKey | None:
        """Return the key in a cursor; None if it has none."""
        return None if key is None else cls(key[0], tuple(key[1]))


@dataclass(frozen=True, slots=True)
class History:
    entries: tuple[Entry, ...]
    horizon: int
    more: HistoryKey | None = None  # where the next page continues


class RevisionSpan(NamedTuple):
    """A range of revisions, from `after` (exclusive) to `to` (inclusive)."""

    after: int
    to: int


# ---- use cases -----------------------------------------------------------------------------------------------

# Pruning moves the horizon before it deletes rows. An old horizon with newer rows would leave a gap.
_IN_ONE_SNAPSHOT = read_snapshot(has_time_limit=True)


@_IN_ONE_SNAPSHOT
def of_pattern(
    environment_id: int,
    predicate: str | None,
    args: Sequence[Argument],
    size: int,
    after: HistoryKey | None = None,
    to: int | None = None,
) -> History:
    """Return a page of the history of the facts that begin with these arguments, up to a revision or until now."""
    kinds = matching(signature_numbers(environment_id), predicate, tuple(args), open_ended=True)
    return _page(environment_id, [(kinds, args)], size, after, to)


@_IN_ONE_SNAPSHOT
def of_kinds(
    environment_id: int,
    kinds: Mapping[Signature, int],
    args: Sequence[Argument],
    size: int,
    after: HistoryKey | None = None,
) -> History:
    """Return a page of the history of the facts of these signatures that begin with these ids."""
    return _page(environment_id, [(kinds, args)], size, after)


@_IN_ONE_SNAPSHOT
def of_value(environment_id: int, value: Value, size: int, after: HistoryKey | None = None) -> History:
    """Return a page of the history of the facts that mention a value, in any argument."""
    numbers = signature_numbers(environment_id)
    wanted = []
    for position in range(MAX_ARGUMENTS):
        here = {each: n for each, n in numbers.items() if each.types[position : position + 1] == (value.type,)}
        wanted.append((here, (*[Argument()] * position, Argument(value.type, value.id))))
    return _page(environment_id, wanted, size, after)


@_IN_ONE_SNAPSHOT
def of_revision(environment_id: int, number: int, size: int, after: HistoryKey | None = None) -> History:
    """Return a page of one revision's changes: a single entry, or none if they are unknown."""
    return _page(environment_id, [(signature_numbers(environment_id), ())], size, after, number, number - 1)


# ---- changes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RevisionChange:
    revision: int
    row: Row
    began: bool  # false: it ended
    expires_at: int | None


def _page(
    environment_id: int,
    wanted: Sequence[tuple[Mapping[Signature, int], Sequence[Argument]]],
    size: int,
    after: HistoryKey | None,
    to: int | None = None,
    beyond: int = 0,
) -> History:
    """Return a page of what revisions changed, those `beyond` one and up `to` one, among the facts that are wanted.

    These are of some signatures, and begin with some ids.
    """
    latest, horizon = newest_and_horizon(environment_id)
    span = RevisionSpan(max(horizon, beyond), latest if to is None else min(to, latest))
    changes = _merged(each for kinds, args in wanted for each in _changes(kinds, args, size + 1, after, span))
    kept, rest = changes[:size], changes[size:]
    signatures = {number: signature for kinds, _ in wanted for signature, number in kinds.items()}
    entries = tuple(_entries(environment_id, kept, signatures))
    return History(entries, horizon, HistoryKey(kept[-1].revision, kept[-1].row) if rest else None)


def _merged(changes: Iterable[_RevisionChange]) -> list[_RevisionChange]:
    """Sort the changes, newest first. If a revision both ended and began a fact, keep only that it began."""
    begun = sorted(changes, key=lambda each: (-each.revision, each.row, not each.began))
    return [next(same) for _, same in groupby(begun, lambda each: (each.revision, each.row))]


def _entries(
    environment_id: int, changes: Sequence[_RevisionChange], signatures: Mapping[int, Signature]
) -> Iterator[Entry]:
    numbers = {change.revision for change in changes}
    made = {each.number: each for each in revisions_of(environment_id).filter(number__in=numbers)}
    for number, group in groupby(changes, lambda each: each.revision):
        found: dict[bool, list[FactChange]] = {True: [], False: []}
        for each in group:
            fact = fact_of_row(signatures[each.row[0]], each.row[1:], each.expires_at)
            found[each.began].append(FactChange(each.row, fact))
        if number in made:  # it may be pruned, with its changes, while this is read
            yield Entry(made[number], tuple(found[True]), tuple(found[False]))


def revisions_of(environment_id: int) -> QuerySet[Revision]:
    """Return the revisions with what is shown of them, including their policy versions without the text."""
    found = Revision.objects.filter(environment=environment_id)
    return found.select_related("policy_version").defer("policy_version__source")


def _changes(
    kinds: Mapping[Signature, int], args: Sequence[Argument], most: int, after: HistoryKey | None, span: RevisionSpan
) -> Iterator[_RevisionChange]:
    """Yield at least the first `most` changes in order, if there are that many.

    The changes of one signature's facts are read by one statement, and so in one snapshot: a fact that is deleted
    meanwhile appears once. Nothing else can change in the history up to these revisions.
    """
    parts = [
        _part(table, column, kind, args, most, after, span)
        for kind in kinds.items()
        for table, column in ((STORED, "since"), (PAST, "since"), (PAST, "until"))
    ]
    for start in range(0, len(parts), _AT_ONCE):
        some = parts[start : start + _AT_ONCE]
        statement = " UNION ALL ".join(f"SELECT * FROM ({sql}) AS part{index}" for index, (sql, _) in enumerate(some))
        rows = fetch(statement, [value for _, values in some for value in values])
        for revision, began, expires_at, *row in rows:
            yield _RevisionChange(revision, tuple(row), bool(began), expires_at)


def _part(
    table: str,
    column: str,
    kind: tuple[Signature, int],
    args: Sequence[Argument],
    most: int,
    after: HistoryKey | None,
    span: RevisionSpan,
) -> tuple[str, list[str | int]]:
    """Return the statement that reads the first changes of a signature's facts from one column, and its parameters."""
    signature, number = kind
    leading = _leading(signature, args)
    # By ids, only past facts that ended are indexed in the order of revisions. The others are found by their ids, and
    # then sorted: an expression keeps both databases from scanning all facts of the signature.
    is_sorted = leading is None or column == "until"
    at = column if is_sorted else f"({column} + 0)"
    conditions = [f"{name} = %s" for name, arg in zip(COLUMNS, args) if arg.id is not None]
    to = min(span.to, after.revision) if after else span.to
    ids = [arg.id for arg in args if arg.id is not None]
    if leading is None and to == span.after + 1:
        return _part_of_one(table, column, number, most, after, to)
    beyond, values = _beyond(at, number, after)
    tests = (f"sig = {int(number)}", *conditions, f"{at} > %s", f"{at} <= %s", beyond)
    order = f"{at} DESC, {IDS}"
    statement = select(_selected(column), *tests, table=table, by=leading, order=order, limit=most)
    return statement, [*ids, span.after, to, *values]


def _selected(column: str) -> str:
    return f"{column} AS revision, {int(column == 'since')} AS began, expires_at, {KEY}"


def _part_of_one(
    table: str, column: str, number: int, most: int, after: HistoryKey | None, revision: int
) -> tuple[str, list[str | int]]:
    """Return the same for a single revision: in row order, as in the index, however many there are."""
    ids_after: tuple[str, ...] = ()
    beyond = ""
    if after is not None and after.revision == revision and number <= after.row[0]:
        beyond, ids_after = (ids_are(">"), after.row[1:]) if number == after.row[0] else ("1 = 0", ())
    tests = (f"sig = {int(number)}", f"{column} = %s", beyond)
    statement = select(_selected(column), *tests, table=table, by=column, order=IDS, limit=most)
    return statement, [revision, *ids_after]


def _leading(signature: Signature, args: Sequence[Argument]) -> str | None:
    """Return the column for looking up facts: the first with a given id, preferably not of a primitive type."""
    given = [
        (name in PRIMITIVES, column) for column, name, arg in zip(COLUMNS, signature.types, args) if arg.id is not None
    ]
    return min(given)[1] if given else None


def _beyond(at: str, number: int, after: HistoryKey | None) -> tuple[str, tuple[str | int, ...]]:
    """Return the condition that a change comes after the cursor; later revisions are already excluded."""
    if after is None or number > after.row[0]:
        return "", ()
    if number < after.row[0]:
        return f"{at} < %s", (after.revision,)
    return f"({at} < %s OR {ids_are('>')})", (after.revision, *after.row[1:])


# ---- The periods in which facts were stored: since when and by whom, and until when ---------------------------------

_WANTED = " AND ".join(f"{name} = wanted.column{place}" for place, name in enumerate(("sig", *COLUMNS), 1))
_FACTS_AT_ONCE = 400  # facts that one statement looks up
_HORIZON = "SELECT horizon FROM authz_environment WHERE id = %s"


@dataclass(frozen=True, slots=True)
class RevisionMark:
    """A revision at which a fact began or ended. If the revision was pruned, only its number is known.

    Without a number, the fact began before revisions were kept; `before` is then the oldest known revision.
    """

    revision: int | None
    at: int | None = None  # microseconds
    author: str = ""
    kind: str = ""
    before: int | None = None


@dataclass(frozen=True, slots=True)
class ValidityPeriod:
    """A period in which a fact was stored. Without `until` it still is, or it has expired and is not swept yet."""

    since: RevisionMark
    until: RevisionMark | None
    expires_at: int | None  # microseconds


@dataclass(frozen=True, slots=True)
class _Found:
    since: int
    until: int | None
    expires_at: int | None


def latest_periods(environment_id: int, rows: Sequence[Row], revision: int | None = None) -> dict[Row, ValidityPeriod]:
    """Return the latest period in which each of these facts was stored, if any.

    As of a revision: the latest one that had begun by then. Takes at most two statements per 400 facts, and two more.
    """
    found = dict(_latest(STORED, "NULL", rows, revision))
    found |= dict(_latest(PAST, "until", [row for row in rows if row not in found], revision))
    if revision is not None:  # without `until` if that is later
        found = {
            row: replace(each, until=None) if (each.until or 0) > revision else each for row, each in found.items()
        }
    marks = _marks(environment_id, {number for each in found.values() for number in (each.since, each.until) if number})
    horizon = fetch(_HORIZON, (environment_id,))[0][0] if any(not each.since for each in found.values()) else 0
    return {row: _period(each, marks, horizon) for row, each in found.items()}


def _latest(table: str, until: str, rows: Sequence[Row], revision: int | None) -> Iterator[tuple[Row, _Found]]:
    begun = "" if revision is None else "since <= %s"
    for start in range(0, len(rows), _FACTS_AT_ONCE):
        some = rows[start : start + _FACTS_AT_ONCE]
        keys = ", ".join(f"({int(row[0])}, %s, %s, %s, %s, %s)" for row in some)
        place = f"ROW_NUMBER() OVER (PARTITION BY {KEY} ORDER BY since DESC) AS place"
        selected, wanted = f"{KEY}, since, {until} AS until, expires_at, {place}", f"(VALUES {keys}) AS wanted"
        # By a0: for past facts, SQLite would choose the index on a1, where names have many facts each.
        ranked = select(selected, _WANTED, begun, table=table, by="a0", beside=wanted)
        values = [value for row in some for value in row[1:]] + ([] if revision is None else [revision])
        for row in fetch(f"SELECT {KEY}, since, until, expires_at FROM ({ranked}) AS ranked WHERE place = 1", values):
            yield row[:-3], _Found(*row[-3:])


def _marks(environment_id: int, numbers: set[int]) -> dict[int, RevisionMark]:
    if not numbers:
        return {}
    found = Revision.objects.filter(environment_id=environment_id, number__in=numbers)
    return {each[0]: RevisionMark(*each) for each in found.values_list("number", "at", "author", "kind")}


def _period(found: _Found, marks: dict[int, RevisionMark], horizon: int) -> ValidityPeriod:
    since = marks.get(found.since, RevisionMark(found.since))
    if not found.since:
        since = RevisionMark(None, before=max(horizon, 1))
    until = marks.get(found.until, RevisionMark(found.until)) if found.until else None
    return ValidityPeriod(since, until, found.expires_at)


# ---- as sentences ----------------------------------------------------------------------------------------------


def since_text(period: ValidityPeriod) -> str:
    """Return since when a fact is stored: `since 2026-11-03T14:02Z by key 3 "billing" (revision 481)`."""
    return f"{_since(period.since)}{f', until {minute(period.expires_at)}' if period.expires_at is not None else ''}"


def until_text(period: ValidityPeriod) -> str:
    """Return until when it was stored: `stored until revision 512, 2026-11-09T08:30Z, deleted by admin ann`."""
    mark, end = period.until, period.expires_at
    if end is not None and (mark is None or (mark.at is not None and end <= mark.at)):
        return f"expired {minute(end)}"
    assert mark is not None, "what is stored and does not hold has come to its end"
    when = f"stored until revision {mark.revision}{f', {minute(mark.at)}' if mark.at is not None else ''}"
    return f"{when}, deleted by {mark.author}" if mark.author else when


def _since(mark: RevisionMark) -> str:
    if mark.revision is None:
        return f"since before revision {mark.before}"
    if mark.at is None:
        return f"since revision {mark.revision}"
    by = f" by {mark.author}" if mark.author else ""
    return f"since {minute(mark.at)}{by} (revision {mark.revision})"


def minute(microseconds: int) -> str:
    return f"{time_of(microseconds):%Y-%m-%dT%H:%MZ}"


# ---- Sweeping: expired facts become past facts, in revisions of their own ------------------------------------------
# Results do not depend on sweeping: a fact stops counting when it expires. Sweeping keeps the table small, and makes
# the expiry of a fact visible in the change feed. Several processes may sweep concurrently: each batch takes a turn,
# and a process does not find what another one has swept.

log = logging.getLogger("authz.facts")

SWEPT_AT_ONCE = 2_000  # facts that one transaction ends, in a tenth of a second: other writers wait for it
PAUSE = 0.02  # seconds between two batches, for the turns of other writers

_BY = By("expiry")


class _NothingEnded(Exception):
    """Another process has swept the facts: roll back, so that no revision is added."""


def sweep_all() -> None:
    for environment_id in environments_with_ends():
        try:
            sweep(environment_id)
        except Unavailable as reason:  # continue: other environments may not be as busy
            log.warning("cannot delete expired facts of environment %d: %s", environment_id, reason.message)


def sweep(environment_id: int, report: Callable[[int], None] = lambda swept: None) -> int:
    """End an environment's expired facts, batch by batch; return how many. `report` gets the total after each batch."""
    swept = 0
    while _expired(environment_id, 1):  # without taking a turn, since there is nearly always nothing to do
        try:
            swept += _sweep_batch(environment_id)
        except (_NothingEnded, NotFound, IsCopy, Moved):  # there is nothing to do here if the environment is gone
            break
        report(swept)
        time.sleep(PAUSE)
    return swept


def _sweep_batch(environment_id: int) -> int:
    with changing():
        turn = advance(environment_id)
        fact_table().lift_time_limit()
        rows = _expired(environment_id, SWEPT_AT_ONCE)
        if not rows:
            raise _NothingEnded
        deleted = fact_table().end([(*row, turn.offset) for row in rows])
        record(environment_id, [Done(turn.offset, Kind.EXPIRY, _BY, turn.policy_version_id, deleted=deleted)])
    return deleted


def _expired(environment_id: int, most: int) -> list[Row]:
    """Return expired facts, earliest expiry first."""
    numbers = numbers_as_of(environment_id).ending_numbers
    if not numbers:
        return []
    # The plus keeps databases from using the index on the signature: few of its facts have expired.
    return fetch(select(KEY, ended(), f"+{of_signatures(sorted(numbers))}", order="expires_at", limit=most))


# ---- pruning ------------------------------------------------------------------------------------------------------
# Pruning deletes old history: revisions before the horizon, and past facts that ended by then.
#
# The new horizon is committed first, so that queries as of older revisions are rejected from then on. Then the rows are
# deleted in small transactions, between which others can write. An interrupted run is completed by the next one.
# Readers are never blocked.

AT_ONCE = 5_000  # rows per transaction
DAY = 86_400_000_000  # microseconds
OLDEST = 1 << 60
LONGEST_PAUSE = 0.5  # seconds between two transactions
PruneReport = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Pruned:
    slug: str
    horizon: int  # the new one
    revisions: int
    facts: int


def prune_by_setting() -> None:
    """Prune what is older than `HISTORY_DAYS`; 0 keeps everything."""
    if settings.HISTORY_DAYS:
        prune(settings.HISTORY_DAYS)


def prune(days: float, report: PruneReport = lambda slug, rows: None) -> list[Pruned]:
    """Prune what is older, in every environment. `report` is called with an environment's total after each step."""
    environments = Environment.objects.order_by("slug").values_list("pk", "slug")
    return [_prune(environment_id, slug, days, report) for environment_id, slug in environments]


def _prune(environment_id: int, slug: str, days: float, report: PruneReport) -> Pruned:
    horizon = _moved_horizon(environment_id, days)
    facts = 0
    for number in signature_numbers(environment_id).values():
        for gone in _steps(PAST, ("sig = %s", "until <= %s"), number, horizon):
            facts += gone
            report(slug, facts)
    revisions = 0
    for gone in _steps("authz_revision", ("environment_id = %s", "number < %s"), environment_id, horizon):
        revisions += gone
        report(slug, facts + revisions)
    return Pruned(slug, horizon, revisions, facts)


def _moved_horizon(environment_id: int, days: float) -> int:
    """Move the horizon to the last revision that is old enough, never backwards; return the horizon."""
    age = min(int(days * DAY), OLDEST)
    old = f"environment_id = %s AND at <= {now_in(connection.vendor)} - %s"
    latest = f"SELECT number FROM authz_revision WHERE {old} ORDER BY at DESC, number DESC LIMIT 1"
    number = next((number for (number,) in fetch(latest, (environment_id, age))), 0)
    with changing():
        moved = "UPDATE authz_environment SET horizon = %s WHERE id = %s AND horizon < %s"
        execute(moved, (number, environment_id, number))
        # No row: the environment was deleted, with all its history.
        return next((row[0] for row in fetch(_HORIZON, (environment_id,))), 0)


def _steps(table: str, tests: tuple[str, ...], *values: int) -> Iterator[int]:
    """Delete the rows in steps, and yield how many each step deleted; pause as long as each step took."""
    gone = AT_ONCE
    while gone == AT_ONCE:
        began = time.monotonic()
        gone = _step(table, tests, values)
        yield gone
        if gone == AT_ONCE:
            time.sleep(min(time.monotonic() - began, LONGEST_PAUSE))


def _step(table: str, tests: tuple[str, ...], values: tuple[int, ...]) -> int:
    row = "rowid" if connection.vendor == "sqlite" else "ctid"
    old = select(row, *tests, table=table, limit=AT_ONCE)
    with changing():
        return execute(delete(f"{row} IN ({old})", table=table), values)


# ---- Erase past facts for good: people have a right to be forgotten ------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matching:
    """Past facts that a pattern matches, and the revisions at which some of them held, within the history."""

    past: int
    first: int
    last: int
    stored: int  # facts that are still stored


def matches(environment_id: int, pattern: FactPattern) -> Matching:
    past, firsts, lasts = 0, [], []
    conditions, ids = id_conditions(pattern.args)
    horizon = fetch(_HORIZON, (environment_id,))[0][0]
    for number in _numbers(environment_id, pattern):
        counted = select("COUNT(*), MIN(since), MAX(until)", f"sig = %s{conditions}", table=PAST)
        ((found, first, last),) = fetch(counted, (number, *ids))
        if found:
            past += found
            firsts.append(max(first, horizon))
            lasts.append(last - 1)
    return Matching(past, min(firsts, default=0), max(lasts, default=0), read.count(environment_id, pattern))


def forget(environment_id: int, pattern: FactPattern) -> int:
    """Erase the matching past facts, all or none; return how many. Results cached from them are invalidated."""
    conditions, ids = id_conditions(pattern.args)
    deletes = delete(f"sig = %s{conditions}", table=PAST)
    with changing():
        _scrub_notes(environment_id)
        fact_table().lift_time_limit()
        execute("UPDATE authz_environment SET moment = %s WHERE id = %s", (new_moment(), environment_id))
        with suppress(IsCopy):  # a follower forgets by itself
            refuse_copy(environment_id)
        return sum(execute(deletes, (number, *ids)) for number in _numbers(environment_id, pattern))


def _scrub_notes(environment_id: int) -> None:
    """Remove facts from log entries of the admin that were made when these still contained ids."""
    kinds = map(str, signature_numbers(environment_id).values())
    notes = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(StoredSignature), object_id__in=list(kinds)
    )
    for what in ("added", "deleted"):
        notes.filter(change_message__startswith=f"{what} ", change_message__contains="{").update(
            change_message=f"{what.capitalize()} a fact."
        )


def _numbers(environment_id: int, pattern: FactPattern) -> list[int]:
    return list(matching(signature_numbers(environment_id), pattern.predicate, pattern.args).values())
