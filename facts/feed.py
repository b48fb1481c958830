"""The change feed after a revision, in order and without gaps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple

from django.db import connection

from facts.models import PAST, STORED
from facts.numbering import Numbered, numbers_as_of
from facts.read import read_snapshot
from facts.table import IDS, KEY, began_again, execute, fetch, ids_are, of_signatures, select
from policy.active import Caller, confirm
from policy.core.clock import short_text_of, text_of
from policy.core.journal import newest_and_horizon
from policy.core.pagination import Cursor, cursor_of, digest_of
from policy.errors import AuthzError, MalformedRequest
from policy.models import Revision
from policy.values import LAST_REVISION, whole_number

# ---- feed position ------------------------------------------------------------------------------------------------
# The position of a reader in the change feed: after a revision, or inside a revision that is sent in parts.
#
# As text, the former is the revision's number, which in the latter precedes a cursor.

MOST = 10_000  # facts per response

FeedEntry = tuple[int, int, tuple[str, ...]]  # 0 if inserted or 1 if deleted, sig, ids


class Inside(NamedTuple):
    """Between two parts of a revision, which all have the same size."""

    is_state: bool  # the parts are of all facts as of the revision, not of its changes
    part: int  # the next part, from 1
    parts: int
    size: int
    asked: str  # the list that the parts are of, as returned by `list_of`
    last: FeedEntry  # of the preceding part


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """After this revision, or inside it."""

    revision: int
    inside: Inside | None = None

    @property
    def text(self) -> int | str:
        """Return the position in the form of a response's `next`."""
        on = self.inside
        if on is None:
            return self.revision
        return f"{self.revision}.{Cursor(on.asked, [on.is_state, on.part, on.parts, on.last], on.size).token}"


def list_of(predicates: Iterable[str]) -> str:
    """Return what a cursor is of: the changes of these predicates."""
    return digest_of("changes", sorted(predicates))


def feed_position_from_text(text: str) -> FeedPosition:
    """Parse and validate the parameter `after`, which is untrusted."""
    number, dot, token = text.partition(".")
    revision = whole_number(number, LAST_REVISION)
    if revision is not None and not dot:
        return FeedPosition(revision)
    match revision, cursor_of(token):
        case int(), Cursor(of, [bool(is_state), int(part), int(parts), [gone, sig, ids]], size):
            return FeedPosition(revision, Inside(is_state, part, parts, size, of, (gone, sig, tuple(ids))))
    raise MalformedRequest("after", "must be a revision number, or the `next` of a previous response")


# ---- The rows of facts and past facts that revisions began and ended ----------------------------------------------
# If a revision both ended and began the same fact, it changed the fact's expiry (`expires_at`): the fact is listed
# among the inserted only. This happens only with signatures whose facts may expire.

MANY = 50_000  # facts: in larger revisions, a part is looked up among all facts

FeedRow = tuple[Any, ...]  # 0 if inserted or 1 if deleted, sig, ids, expires_at
FactsOfChange = tuple[list[dict[str, object]], list[dict[str, object]]]  # facts that were inserted, and deleted


def chosen_signatures(environment_id: int, predicates: frozenset[str]) -> Numbered:
    """Return the signatures of these predicates, or all if there are none."""
    known = numbers_as_of(environment_id)
    if not predicates:
        return known
    return known.only({each: number for each, number in known.numbers.items() if each.predicate in predicates})


def _begun_again(chosen: Numbered) -> str:
    """Return the condition that excludes past facts which began again; empty if there are none."""
    return f"NOT ({of_signatures(chosen.ending_numbers)} AND ({began_again()}))" if chosen.ending else ""


def row_to_json(chosen: Numbered, number: int, ids: Sequence[str], expires_at: int | None) -> dict[str, object]:
    """Return the same as `fact_to_json`, without making a fact."""
    signature = chosen.by_number[number]
    args = [{"type": name, "id": text} for name, text in zip(signature.types, ids)]
    end = {} if expires_at is None else {"expires_at": short_text_of(expires_at)}
    return {"predicate": signature.predicate, "args": args, **end}


# ---- all facts of some revisions ---------------------------------------------------------------------------------


def inserted_and_deleted(chosen: Numbered, first: int, last: int) -> dict[int, FactsOfChange]:
    """Return the facts that these revisions inserted and deleted, by revision."""
    found: dict[int, FactsOfChange] = {}
    if chosen.numbers:
        inserted = _between("since", f"since, 0, {KEY}, expires_at", chosen)
        deleted = _between("until", f"until, 1, {KEY}, NULL", chosen)
        rows = sorted(fetch(f"{inserted} UNION ALL {deleted}", (first, last) * 3))
        for number, gone, sig, *ids, expires_at in rows:
            if number not in found:
                found[number] = ([], [])
            found[number][gone].append(row_to_json(chosen, sig, ids, expires_at))
    return found


def counts(chosen: Numbered, first: int, last: int) -> dict[int, int]:
    """Return how many facts each of these revisions inserted and deleted."""
    if not chosen.numbers:
        return {}
    inserted, deleted = _between("since", "since AS number", chosen), _between("until", "until AS number", chosen)
    counted = f"SELECT number, COUNT(*) FROM ({inserted} UNION ALL {deleted}) changed GROUP BY number"
    return dict(fetch(counted, (first, last) * 3))


def _between(column: str, selected: str, chosen: Numbered) -> str:
    """Return the SELECT of rows that began, or ended, between two revisions."""
    between = f"{column} BETWEEN %s AND %s"
    if column == "until":
        return select(selected, of_signatures(chosen.by_number), between, _begun_again(chosen), table=PAST, by=column)
    return " UNION ALL ".join(
        select(selected, of_signatures(chosen.by_number), between, table=table, by=column) for table in (STORED, PAST)
    )


# ---- one revision, in the order of its facts ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arm:
    """Where some of a revision's facts are stored."""

    gone: int  # 0: inserted, 1: deleted
    table: str
    condition: str
    values: tuple[int, ...]
    by: str | None  # the column whose index serves the condition


def arms_of(number: int, is_state: bool) -> tuple[Arm, ...]:
    if is_state:
        stored = Arm(0, STORED, "+since <= %s", (number,), None)
        return stored, Arm(0, PAST, "+since <= %s AND +until > %s", (number, number), None)
    return (
        Arm(0, STORED, "since = %s", (number,), "since"),
        Arm(0, PAST, "since = %s", (number,), "since"),
        Arm(1, PAST, "until = %s", (number,), "until"),
    )


def count(arms: Iterable[Arm], chosen: Numbered) -> int:
    counted = 0
    for arm in arms:
        again = _begun_again(chosen) if arm.gone else ""
        tests = (of_signatures(chosen.by_number), arm.condition, again)
        statement = select("COUNT(*)", *tests, table=arm.table, by=arm.by)
        counted += fetch(statement, arm.values)[0][0]
    return counted


def part_of(arms: Sequence[Arm], chosen: Numbered, after: FeedEntry | None, most: int, size: int) -> list[FeedRow]:
    """Return up to `most` next facts of a revision of `size` facts: inserted ones first, by signature and ids."""
    found: list[FeedRow] = []
    if connection.vendor == "postgresql" and (size > MANY or not all(arm.by for arm in arms)):
        # The planner would rather read all remaining rows and sort them, as it expects only a few.
        execute("SET LOCAL enable_sort = off")
    for gone in (0, 1):
        mine = [arm for arm in arms if arm.gone == gone]
        for sig in chosen.by_number if mine else ():
            if after is not None and (gone, sig) < after[:2]:
                continue
            start = after[2] if after is not None and (gone, sig) == after[:2] else None
            found += _of_signature(mine, chosen, sig, start, most - len(found), size)
            if len(found) == most:
                return found
    return found


def _of_signature(
    arms: Sequence[Arm], chosen: Numbered, sig: int, start: tuple[str, ...] | None, most: int, size: int
) -> list[FeedRow]:
    """Return facts of one signature, by ids. Past facts are read no further than stored ones."""
    found: list[FeedRow] = []
    end: tuple[str, ...] | None = None
    for arm in arms:
        statement = _statement(arm, chosen, start is not None, end is not None, size)
        rows = fetch(statement, (sig, *arm.values, *(start or ()), *(end or ()), most))
        found += [(arm.gone, sig, *row) for row in rows]
        if len(rows) == most:
            end = rows[-1][:-1]
    found.sort()
    return found[:most]


def _statement(arm: Arm, chosen: Numbered, is_begun: bool, is_bounded: bool, size: int) -> str:
    bounds = (ids_are(">") if is_begun else "", ids_are("<=") if is_bounded else "")
    selected = f"{IDS}, {'NULL' if arm.gone else 'expires_at'} AS expires_at"
    again = _begun_again(chosen) if arm.gone else ""
    condition, by = arm.condition, arm.by
    if by and size > MANY and not (connection.vendor == "sqlite" and arm.table == STORED):
        condition, by = f"+{condition}", None
    tests = ("sig = %s", condition, again, *bounds)
    if by and connection.vendor == "postgresql":
        mine = select(selected, *tests, table=arm.table)
        return f"WITH mine AS MATERIALIZED ({mine}) SELECT * FROM mine ORDER BY {IDS} LIMIT %s"
    return select(selected, *tests, table=arm.table, by=by, order=IDS, limit="%s")


# ---- feed ---------------------------------------------------------------------------------------------------------
# The change feed after a revision, in order and without gaps: each revision once, whole or in parts.
#
# A revision stores how many facts it changed, so one statement reads as many revisions as fit into a response. A
# revision that is too large for a response is read in parts, in the order of its facts, from the stored and the past
# facts: a fact that it inserted may have become a past one before its last part is read. The state as of the horizon is
# read in parts too.

SKIPPED_AT_ONCE = 100_000  # facts, or revisions without any, that one step scans for certain predicates
PATIENCE = 1.0  # seconds after which a response may have no changes although there are some later
_NOTHING: FactsOfChange = ([], [])
_NEVER_NEXT = "is not the `next` of a previous response"


class BeforeHorizon(AuthzError):
    """The requested history was pruned."""

    def __init__(self, horizon: int):
        super().__init__(
            f"changes before revision {horizon} are no longer available; start again with after=0, which returns "
            "all facts at that revision first"
        )
        self.horizon = horizon

    @property
    def body(self) -> dict[str, object]:
        return {"message": self.message, "horizon": self.horizon}


@dataclass(frozen=True, slots=True)
class FeedRequest:
    after: FeedPosition
    limit: int = 1000  # facts per response
    predicates: frozenset[str] = frozenset()  # empty: all


@dataclass(frozen=True, slots=True)
class FeedPage:
    changes: list[dict[str, object]]
    after: FeedPosition  # from where to continue
    more: bool  # whether there is more now
    newest: int  # the latest revision


@dataclass(frozen=True, slots=True)
class _Header:
    """A revision without its facts."""

    number: int
    at: int
    author: str
    kind: str
    size: int  # how many facts it changed; at least those that are still known
    policy_version: int | None

    def to_json(self, inserted: list, deleted: list, **part: int) -> dict[str, object]:
        return change_to_json(self, inserted, deleted, self.policy_version, **part)


def change_to_json(
    made: _Header | Revision, inserted: list, deleted: list, policy_version: int | None, **part: int
) -> dict[str, object]:
    return {
        "revision": made.number,
        "at": text_of(made.at),
        "author": made.author,
        "kind": made.kind,
        **part,
        "inserted": inserted,
        "deleted": deleted,
        "policy_version": policy_version,
    }


@dataclass(frozen=True, slots=True)
class _FeedReader:
    """Reads for one response, in one snapshot."""

    environment_id: int
    chosen: Numbered
    asked: FeedRequest
    newest: int


def read(environment_id: int, asked: FeedRequest) -> FeedPage:
    """Return the changes after a position. The caller opens the snapshot to read from (`read_snapshot`)."""
    newest, horizon = newest_and_horizon(environment_id)
    position = asked.after
    _check(position, newest, horizon, asked)
    reader = _FeedReader(environment_id, chosen_signatures(environment_id, asked.predicates), asked, newest)
    if position.inside is not None:
        return _go_on(reader, position.revision, position.inside)
    if position.revision < horizon:
        return _begin(reader, horizon)
    return _following(reader, position.revision)


def read_state(environment_id: int, limit: int) -> FeedPage:
    """Return all facts as of now, or their first part, as a revision of kind `state`; read on as in the feed."""
    newest, _ = newest_and_horizon(environment_id)
    asked = FeedRequest(FeedPosition(newest), limit)
    reader = _FeedReader(environment_id, chosen_signatures(environment_id, frozenset()), asked, newest)
    return _begin(reader, newest) if newest else FeedPage([], FeedPosition(0), False, 0)


def _check(position: FeedPosition, newest: int, horizon: int, asked: FeedRequest) -> None:
    if position.revision > newest:
        raise MalformedRequest("after", f"revision {position.revision} does not exist yet; the latest is {newest}")
    inside = position.inside
    if inside is None:
        if 0 < position.revision < horizon:
            raise BeforeHorizon(horizon)
        return
    if position.revision == 0:  # has no parts
        raise MalformedRequest("after", _NEVER_NEXT)
    # At the horizon the state is known, but no longer the changes of the horizon's own revision.
    if position.revision < horizon or (position.revision == horizon and not inside.is_state):
        raise BeforeHorizon(horizon)
    if inside.asked != list_of(asked.predicates):
        raise MalformedRequest(
            "after", "continues a revision that was read with other `predicate` parameters; use the same ones"
        )


# ---- many revisions ----------------------------------------------------------------------------------------------


def _following(reader: _FeedReader, after: int) -> FeedPage:
    if reader.asked.predicates:
        return _following_chosen(reader, after) if reader.chosen.numbers else _ended(reader, [])
    limit = reader.asked.limit
    headers = _headers(reader.environment_id, after, limit + 1)
    taken = list(_fitting(headers, {each.number: max(1, each.size) for each in headers}, limit))
    if not headers:
        return _ended(reader, [])
    if not taken:
        return _first_of_parts(reader, headers[0])
    more = len(taken) < len(headers)
    return _whole(reader, taken, more)


def _following_chosen(reader: _FeedReader, after: int) -> FeedPage:
    """Skip the revisions that have no fact with the requested predicates, for at most `PATIENCE` seconds."""
    until = time.monotonic() + PATIENCE
    while True:
        headers = _headers(reader.environment_id, after, SKIPPED_AT_ONCE // 10)
        if not headers:
            return _ended(reader, [])
        sizes = {each.number: max(1, each.size) for each in headers}
        looked = list(_fitting(headers, sizes, SKIPPED_AT_ONCE)) or headers[:1]
        after = looked[-1].number
        found = counts(reader.chosen, looked[0].number, after)
        some = [each for each in looked if found.get(each.number)]
        if some:
            break
        if time.monotonic() > until:
            return FeedPage([], FeedPosition(after), after < reader.newest, reader.newest)
    taken = list(_fitting(some, found, reader.asked.limit))
    if not taken:
        return _first_of_parts(reader, some[0])
    if len(taken) < len(some):
        return _whole(reader, taken, True)
    return replace(_whole(reader, taken, after < reader.newest), after=FeedPosition(after))


def _fitting(headers: Iterable[_Header], sizes: Mapping[int, int], limit: int) -> Iterator[_Header]:
    """Yield the first revisions, while they have at most `limit` facts in total."""
    left = limit

    def fits(header: _Header) -> bool:
        nonlocal left
        left -= sizes[header.number]
        return left >= 0

    return takewhile(fits, headers)


def _whole(reader: _FeedReader, headers: Sequence[_Header], more: bool) -> FeedPage:
    first, last = headers[0].number, headers[-1].number
    facts = inserted_and_deleted(reader.chosen, first, last) if any(each.size for each in headers) else {}
    changes = [each.to_json(*facts.get(each.number, _NOTHING)) for each in headers]
    return FeedPage(changes, FeedPosition(last), more, reader.newest) if more else _ended(reader, changes)


def _ended(reader: _FeedReader, changes: list[dict[str, object]]) -> FeedPage:
    return FeedPage(changes, FeedPosition(reader.newest), False, reader.newest)


def _headers(environment_id: int, after: int, most: int) -> list[_Header]:
    version = "SELECT v.number FROM authz_policy_version v WHERE v.id = authz_revision.policy_version_id"
    following = (
        f"SELECT number, at, author, kind, inserted + deleted, CASE WHEN kind = 'policy' THEN ({version}) END"
        " FROM authz_revision WHERE environment_id = %s AND number > %s ORDER BY number LIMIT %s"
    )
    return [_Header(*row) for row in fetch(following, (environment_id, after, most))]


# ---- one revision in parts ---------------------------------------------------------------------------------------


def _begin(reader: _FeedReader, number: int) -> FeedPage:
    """Begin with the state: all facts as of a revision."""
    (header,) = _headers(reader.environment_id, number - 1, 1)
    return _first_of_parts(reader, replace(header, author="", kind="state", policy_version=None))


def _first_of_parts(reader: _FeedReader, header: _Header) -> FeedPage:
    """Return the first part of a revision that seems too large; all of it, if it turns out to fit."""
    size = reader.asked.limit
    arms = arms_of(header.number, header.kind == "state")
    rows = part_of(arms, reader.chosen, None, size + 1, header.size)
    if len(rows) <= size:
        change = header.to_json(*_by_kind(reader, rows))
        return FeedPage([change], FeedPosition(header.number), header.number < reader.newest, reader.newest)
    parts = -(-count(arms, reader.chosen) // size)
    inside = Inside(header.kind == "state", 1, parts, size, list_of(reader.asked.predicates), (0, 0, ()))
    return _part(reader, header, inside, rows)


def _go_on(reader: _FeedReader, number: int, inside: Inside) -> FeedPage:
    header = next(iter(_headers(reader.environment_id, number - 1, 1)), None)
    if header is None or header.number != number:
        raise MalformedRequest("after", _NEVER_NEXT)
    if inside.is_state:
        header = replace(header, author="", kind="state", policy_version=None)
    arms = arms_of(number, inside.is_state)
    rows = part_of(arms, reader.chosen, inside.last, inside.size + 1, header.size)
    return _part(reader, header, inside, rows)


def _part(reader: _FeedReader, header: _Header, inside: Inside, rows: list[FeedRow]) -> FeedPage:
    """Return the next part. If past facts were removed since the first part, there may be fewer parts than it said."""
    is_last = len(rows) <= inside.size
    rows = rows[: inside.size]
    parts = inside.part if is_last else max(inside.parts, inside.part + 1)
    change = header.to_json(*_by_kind(reader, rows), part=inside.part, parts=parts)
    if is_last:
        return FeedPage([change], FeedPosition(header.number), header.number < reader.newest, reader.newest)
    last = rows[-1]
    following = inside._replace(part=inside.part + 1, parts=parts, last=(last[0], last[1], last[2:-1]))
    return FeedPage([change], FeedPosition(header.number, following), True, reader.newest)


def _by_kind(reader: _FeedReader, rows: Iterable[FeedRow]) -> FactsOfChange:
    found: FactsOfChange = ([], [])
    for row in rows:
        found[row[0]].append(row_to_json(reader.chosen, row[1], row[2:-1], row[-1]))
    return found


def as_json(found: FeedPage) -> dict[str, Any]:
    return {"changes": found.changes, "next": found.after.text, "more": found.more}


# ---- Following the change feed --------------------------------------------------------------------------------------

LOOK_EVERY = 0.15  # seconds


def found(environment_id: int, asked: FeedRequest, patience: float, caller: Caller | None = None) -> FeedPage:
    """Return the changes as soon as there are some, or none after `patience` seconds.

    A revision without any requested fact does not end the wait. With a caller, each read checks the key.
    """

    @read_snapshot()
    def look() -> FeedPage:
        return read(confirm(caller).environment_id if caller else environment_id, asked)

    until = time.monotonic() + patience
    while True:
        here = look()
        if here.changes or here.more or time.monotonic() >= until:
            return here
        time.sleep(min(LOOK_EVERY, max(0.0, until - time.monotonic())))
        asked = replace(asked, after=here.after)
