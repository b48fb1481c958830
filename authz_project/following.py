"""Send an environment to followers. What they store, and why, is in `authz_project.copies`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import ClassVar, NamedTuple

import orjson
from django.db import connection

from authz_project.copies import FORMAT, ROW, VERSION_FIELDS, RevisionRow, Sent, digest_of, keys_of, made_at
from facts import feed
from facts.feed import FeedPage, FeedPosition, FeedRequest, feed_position_from_text, read_state
from facts.read import read_snapshot
from facts.table import fetch
from policy.active import Caller, Scope
from policy.core import clock
from policy.core.clock import timeline
from policy.core.config import settings
from policy.core.journal import Kind, newest_and_horizon
from policy.core.memory import compact
from policy.endpoint import LONG_POLL, RESPONDS_LATER, Endpoint, Request, Response, caller
from policy.models import PolicyVersion

PAGE = feed.MOST  # facts per answer

# ---- what the main service sends -----------------------------------------------------------------------------------


def with_rows(environment_id: int, changes: Iterable[Sent]) -> list[Sent]:
    """Return changes of the feed with their revisions' rows, and with the policies that became active."""
    found = list(changes)
    if not found:
        return found
    rows = fetch(
        f"SELECT {ROW}, policy_version_id, (SELECT v.number FROM authz_policy_version v WHERE v.id = policy_version_id)"
        " FROM authz_revision WHERE environment_id = %s AND number BETWEEN %s AND %s",
        (environment_id, found[0]["revision"], found[-1]["revision"]),
    )
    made = {row[0]: row for row in rows}
    with_policy = [each for each in found if each["kind"] in ("state", Kind.POLICY)]
    policies = _versions({made[each["revision"]][-2] for each in with_policy})
    for change in found:
        *row, version, number = made[change["revision"]]
        change |= {"made": row, "version": number}
        if change["kind"] in ("state", Kind.POLICY) and version in policies:
            change["policy"] = policies[version]
    return found


def _versions(ids: set[int | None]) -> dict[int, Sent]:
    rows = PolicyVersion.objects.filter(pk__in=ids - {None})  # without any, no statement runs
    return {row.pk: {name: getattr(row, name) for name in VERSION_FIELDS} for row in rows}


@dataclass(frozen=True, slots=True)
class _Entry:
    """A revision in its form for followers; the first entry of a list has only its row."""

    number: int
    made: RevisionRow | None
    text: bytes = b""


class _Tail(NamedTuple):
    """What a follower that is nearly up to date gets."""

    base: RevisionRow | None  # the row of its revision
    texts: list[bytes]
    last: int
    keys: bytes
    now: int  # by the database's clock
    age: float  # seconds since it was read


class RecentChanges:
    """The latest revisions and the keys of an environment as JSON: read and encoded once for all followers.

    They are read at most every `TICK` seconds while there are new ones; the keys in the same snapshot, and twice a
    second.
    """

    MOST = 8 << 20  # bytes
    BEHIND = 1_000  # revisions; after a longer time without followers, begin anew
    TICK, FRESH = 0.1, 0.5  # seconds

    def __init__(self, environment_id: int) -> None:
        self._environment_id = environment_id
        self._lock = Lock()
        self._entries: list[_Entry] = []
        self._keys, self._now, self._read_at = b"", 0, 0.0

    def after(self, revision: int, newest: int) -> _Tail | None:
        """Return what follows a revision, at least one if it is before the `newest`; None if it is not at hand."""
        with self._lock:
            if self._is_due(revision, newest):
                now, started = _now(), time.monotonic()
                self._read()
                self._now, self._read_at = now, started
            place = revision - self._entries[0].number
            if not 0 <= place < len(self._entries):
                return None
            texts = [entry.text for entry in self._entries[place + 1 :]]
            base, last, age = self._entries[place].made, self._entries[-1].number, time.monotonic() - self._read_at
            return _Tail(base, texts, last, self._keys, self._now + int(age * 1e6), age)

    def _is_due(self, revision: int, newest: int) -> bool:
        age = time.monotonic() - self._read_at
        if not self._entries or age > self.FRESH:
            return True
        last = self._entries[-1].number
        return last < newest and (revision >= last or age > self.TICK)

    @read_snapshot()
    def _read(self) -> None:
        mine, entries = self._environment_id, self._entries
        newest, horizon = newest_and_horizon(mine)
        last = entries[-1] if entries else _Entry(-self.BEHIND, None)
        is_near = max(horizon, newest - self.BEHIND) <= last.number <= newest
        is_same = is_near and made_at(mine, last.number) == last.made
        self._entries = self._entries if is_same and self._append(newest) else [_Entry(newest, made_at(mine, newest))]
        self._keys = keys_of(mine)

    def _append(self, newest: int) -> bool:
        """Append all later revisions; return False if one of them is too large."""
        entries = self._entries
        while entries[-1].number < newest:
            page = feed.read(self._environment_id, FeedRequest(FeedPosition(entries[-1].number), PAGE))
            for change in with_rows(self._environment_id, page.changes):
                if "part" in change:
                    return False
                entries.append(_Entry(change["revision"], change["made"], compact(orjson.dumps(change))))
        size = sum(len(each.text) for each in entries)
        while size > self.MOST:
            size -= len(entries.pop(0).text)
        return bool(entries)


@cache
def _recent(environment_id: int) -> RecentChanges:
    return RecentChanges(environment_id)


timeline.forgets(_recent.cache_clear)


class FollowEndpoint(Endpoint):
    scopes: ClassVar = {"GET": Scope.FOLLOW}

    def get(self, request: Request) -> Response:
        who, query, poll = caller(request), request.query_params, request.headers.get(LONG_POLL)
        after = feed_position_from_text(query["after"]) if query.get("after") else None
        digest, wait = query.get("keys", ""), query.get("wait", "")
        waited = poll.waited if poll else 0.0  # before anything is read
        tail = _tail_after(who, after)
        if tail is None:
            return Response(_read(who, after, digest, waited))
        is_news = tail.texts or digest_of(tail.keys) != digest
        seconds = min(float(wait), LONGEST_WAIT) if _SECONDS.fullmatch(wait) else 0.0
        if poll and not is_news and poll.wait(request, who.environment_id, tail.last, seconds, keys=digest):
            return RESPONDS_LATER
        ended = (tail.last, False)
        return Response(_written(who, tail.base, tail.texts, ended, tail.keys, digest, tail.now, waited - tail.age))


LONGEST_WAIT = 20.0  # seconds; less than the idle timeout of connections
_SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,9})?", re.ASCII)


def _tail_after(who: Caller, after: FeedPosition | None) -> _Tail | None:
    """Return what follows a revision; None if it is not at hand."""
    assert who.seen is not None, "the caller is confirmed"
    if after is None or after.inside is not None or after.revision > who.seen.offset:
        return None
    return _recent(who.environment_id).after(after.revision, who.seen.offset)


@read_snapshot()
def _read(who: Caller, after: FeedPosition | None, digest: str, waited: float) -> bytes:
    mine = who.environment_id
    page: FeedPage = read_state(mine, PAGE) if after is None else feed.read(mine, FeedRequest(after, PAGE))
    texts = [orjson.dumps(each) for each in with_rows(mine, page.changes)]
    base = made_at(mine, after.revision) if after is not None else None
    return _written(who, base, texts, (page.after.text, page.more), keys_of(mine), digest, _now(), waited)


def _now() -> int:
    """Return the time of the database's clock. SQLite has the machine's."""
    return clock.now() if connection.vendor == "postgresql" else time.time_ns() // 1000


def _written(
    who: Caller, base: RevisionRow | None, texts: list[bytes], following: tuple[int | str, bool],
    keys: bytes, digest: str, now: int, waited: float,
) -> bytes:  # fmt: skip
    head = {
        "format": FORMAT, "environment": who.environment, "now": now, "waited": waited,
        "age": settings.FOLLOW.age if settings.FOLLOW else 0.0, "base": base, "next": following[0],
        "more": following[1], "keys": orjson.Fragment(keys) if digest_of(keys) != digest else None,
        "changes": orjson.Fragment(b"[" + b",".join(texts) + b"]"),
    }  # fmt: skip
    return orjson.dumps(head)


endpoints = {"follow": FollowEndpoint()}
