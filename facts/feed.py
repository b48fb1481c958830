"""The feed of changes after a revision, in order and without gaps: each revision once, whole or in parts.

A revision says how many facts it changed, so one statement reads as many revisions as fit into a response. A revision
that is too large for a response is read in parts, in the order of its facts, from the stored and the past facts: a fact
that it inserted may be a past one before its last part is read. The state as of the horizon is read in parts too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from django.db import connection

from facts.feed_position import FeedPosition, Inside, digest_of
from facts.feed_rows import Changed, Chosen, Row, arms_of, count, counts, inserted_and_deleted, part_of
from policy.clock import text_of
from policy.errors import AuthzError, MalformedRequest
from policy.revisions import newest_and_horizon

SKIPPED_AT_ONCE = 100_000  # facts, or revisions without any, that one step looks at to find certain predicates
PATIENCE = 1.0  # seconds, after which a response may have no changes although there are some later
_NOTHING: Changed = ([], [])
_NEVER_NEXT = "is not what `next` was before"


class BeforeHorizon(AuthzError):
    """The history asked for was pruned."""

    def __init__(self, horizon: int):
        super().__init__(
            f"changes are kept from revision {horizon} on;"
            " begin again with after=0, which starts with the facts as of that one"
        )
        self.horizon = horizon

    @property
    def body(self) -> dict[str, object]:
        return {"message": self.message, "horizon": self.horizon}


@dataclass(frozen=True, slots=True)
class FeedRequest:
    after: FeedPosition
    limit: int = 1000  # facts of an answer
    predicates: frozenset[str] = frozenset()  # none: all


@dataclass(frozen=True, slots=True)
class FeedPage:
    changes: list[dict[str, object]]
    after: FeedPosition  # from where to go on
    more: bool  # whether there is more now
    newest: int  # the last revision


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
        return {
            "revision": self.number,
            "at": text_of(self.at),
            "author": self.author,
            "kind": self.kind,
            **part,
            "inserted": inserted,
            "deleted": deleted,
            "policy_version": self.policy_version,
        }


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads for one answer, in one moment."""

    environment_id: int
    chosen: Chosen
    asked: FeedRequest
    newest: int
    horizon: int


def read(environment_id: int, asked: FeedRequest) -> FeedPage:
    """Return the changes after a position. The caller opens the snapshot to read from (`read_snapshot`)."""
    newest, horizon = newest_and_horizon(environment_id)
    position = asked.after
    _check(position, newest, horizon, asked)
    reader = _Reader(environment_id, Chosen.of(environment_id, asked.predicates), asked, newest, horizon)
    if position.inside is not None:
        return _go_on(reader, position.revision, position.inside)
    if position.revision < horizon:
        return _begin(reader)
    return _following(reader, position.revision)


def _check(position: FeedPosition, newest: int, horizon: int, asked: FeedRequest) -> None:
    if position.revision > newest:
        raise MalformedRequest("after", f"there is no revision {position.revision} yet; the newest is {newest}")
    inside = position.inside
    if inside is None:
        if 0 < position.revision < horizon:
            raise BeforeHorizon(horizon)
        return
    if position.revision == 0:  # which has no parts
        raise MalformedRequest("after", _NEVER_NEXT)
    # As of the horizon the state is known, but no longer what the horizon's own revision changed.
    if position.revision < horizon or (position.revision == horizon and not inside.is_state):
        raise BeforeHorizon(horizon)
    if inside.is_state and position.revision != horizon:
        raise MalformedRequest("after", _NEVER_NEXT)
    if inside.asked != digest_of(asked.predicates):
        raise MalformedRequest("after", "goes on inside of a revision that was read with other `predicate`s")


# ---- many revisions ----------------------------------------------------------------------------------------------


def _following(reader: _Reader, after: int) -> FeedPage:
    if reader.asked.predicates:
        return _following_chosen(reader, after) if reader.chosen.signatures else _ended(reader, [])
    limit = reader.asked.limit
    headers = _headers(reader.environment_id, after, limit + 1)
    taken = list(_fitting(headers, {each.number: max(1, each.size) for each in headers}, limit))
    if not headers:
        return _ended(reader, [])
    if not taken:
        return _first_of_parts(reader, headers[0], more=len(headers) > 1)
    more = len(taken) < len(headers)
    return _whole(reader, taken, more)


def _following_chosen(reader: _Reader, after: int) -> FeedPage:
    """Skip the revisions that have no fact with the predicates asked for, for `PATIENCE` seconds at most."""
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
        return _first_of_parts(reader, some[0], more=some[0].number < reader.newest)
    if len(taken) < len(some):
        return _whole(reader, taken, True)
    return replace(_whole(reader, taken, after < reader.newest), after=FeedPosition(after))


def _fitting(headers: Iterable[_Header], sizes: Mapping[int, int], limit: int) -> Iterator[_Header]:
    """Yield the first revisions, as long as they have `limit` facts at most in all."""
    left = limit

    def fits(header: _Header) -> bool:
        nonlocal left
        left -= sizes[header.number]
        return left >= 0

    return takewhile(fits, headers)


def _whole(reader: _Reader, headers: Sequence[_Header], more: bool) -> FeedPage:
    first, last = headers[0].number, headers[-1].number
    facts = inserted_and_deleted(reader.chosen, first, last) if any(each.size for each in headers) else {}
    changes = [each.to_json(*facts.get(each.number, _NOTHING)) for each in headers]
    return FeedPage(changes, FeedPosition(last), more, reader.newest) if more else _ended(reader, changes)


def _ended(reader: _Reader, changes: list[dict[str, object]]) -> FeedPage:
    return FeedPage(changes, FeedPosition(reader.newest), False, reader.newest)


def _headers(environment_id: int, after: int, most: int) -> list[_Header]:
    version = "SELECT version.number FROM policy_version version WHERE version.id = revision.policy_version_id"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT number, at, author, kind, inserted + deleted,"
            f" CASE WHEN kind = 'policy' THEN ({version}) END"
            " FROM revision WHERE environment_id = %s AND number > %s ORDER BY number LIMIT %s",
            (environment_id, after, most),
        )
        return [_Header(*row) for row in cursor.fetchall()]


# ---- one revision in parts ---------------------------------------------------------------------------------------


def _begin(reader: _Reader) -> FeedPage:
    """Begin the feed with the state: all facts as of the horizon."""
    (header,) = _headers(reader.environment_id, reader.horizon - 1, 1)
    state = replace(header, author="", kind="state", policy_version=None)
    return _first_of_parts(reader, state, more=reader.newest > reader.horizon)


def _first_of_parts(reader: _Reader, header: _Header, more: bool) -> FeedPage:
    """Return the first part of a revision that seems too large; all of it, if it turns out to fit."""
    size = reader.asked.limit
    arms = arms_of(header.number, header.kind == "state")
    rows = part_of(arms, reader.chosen, None, size + 1, header.size)
    if len(rows) <= size:
        change = header.to_json(*_by_kind(reader, rows))
        return FeedPage([change], FeedPosition(header.number), more, reader.newest)
    parts = -(-count(arms, reader.chosen) // size)
    inside = Inside(header.kind == "state", 1, parts, size, digest_of(reader.asked.predicates), (0, 0, ()))
    return _part(reader, header, inside, rows)


def _go_on(reader: _Reader, number: int, inside: Inside) -> FeedPage:
    header = next(iter(_headers(reader.environment_id, number - 1, 1)), None)
    if header is None or header.number != number:
        raise MalformedRequest("after", _NEVER_NEXT)
    if inside.is_state:
        header = replace(header, author="", kind="state", policy_version=None)
    arms = arms_of(number, inside.is_state)
    rows = part_of(arms, reader.chosen, inside.last, inside.size + 1, header.size)
    return _part(reader, header, inside, rows)


def _part(reader: _Reader, header: _Header, inside: Inside, rows: list[Row]) -> FeedPage:
    """Return the next part. If past facts were removed since the first part, there may be fewer parts than it said."""
    is_last = len(rows) <= inside.size
    rows = rows[: inside.size]
    parts = inside.part if is_last else max(inside.parts, inside.part + 1)
    change = header.to_json(*_by_kind(reader, rows), part=inside.part, parts=parts)
    if is_last:
        return FeedPage([change], FeedPosition(header.number), header.number < reader.newest, reader.newest)
    last = rows[-1]
    following = replace(inside, part=inside.part + 1, parts=parts, last=(last[0], last[1], last[2:-1]))
    return FeedPage([change], FeedPosition(header.number, following), True, reader.newest)


def _by_kind(reader: _Reader, rows: Iterable[Row]) -> Changed:
    found: Changed = ([], [])
    for row in rows:
        found[row[0]].append(reader.chosen.fact_to_json(row[1], row[2:-1], row[-1]))
    return found


def as_json(found: FeedPage) -> dict[str, Any]:
    return {"changes": found.changes, "next": found.after.text, "more": found.more}
