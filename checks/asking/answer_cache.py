"""A cache of answers, for requests that are sent again. It is exact: the database confirms an answer before each use.

An answer is kept with what held in the snapshot that it was read from: the policy version, and the moment, a random
number that is drawn anew with every change of the environment. When the request comes again, one small statement checks
the key and reads what holds now. If that is the same, the kept answer is sent. All else that an answer depends on is in
the request, and the whole request is the key of the cache.

A process remembers the latest moment that its statements saw. An answer of another moment is not worth confirming: the
question is asked at once. So a question that is new, or new since a change, costs one statement, as without a cache.
Nothing is kept for a request that comes for the first time, since most requests never come again.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple, Protocol

from checks.asking import run
from checks.asking.askers import confirmed
from checks.asking.session import Cache, SnapshotState
from facts.accept import Unused
from policy.active import Caller, Seen
from policy.ground import spans
from policy.ground.cache import configured

CacheKey = tuple[int, str, bytes]  # an environment, what is asked of it, and the body of the request
_OVERHEAD = 1_000  # bytes that the smallest answer takes, with its places in tables
_OF_UNUSED = 12_000  # bytes that one kind of unused context facts may take
_CONFIRMED: spans.Noted = ("kept", 0.0, 0.0, {})
_SHARE = 8  # an answer that takes more than 1/_SHARE of the room is not kept
_MOST_ENVIRONMENTS = 10_000
_MOST_SEEN = 1 << 16


class AnswerSource(Protocol):
    """How an answer was found."""

    @property
    def unused(self) -> Unused: ...  # of the question's context
    @property
    def revision(self) -> int: ...  # of the facts
    @property
    def version_id(self) -> int | None: ...  # of the policy that answered
    @property
    def valid_while(self) -> SnapshotState | None: ...  # the answer holds as long as this does; None: do not keep it
    @property
    def seen(self) -> Seen: ...  # how far the environment was then


class CachedAnswer(NamedTuple):
    """An answer as JSON, the context facts that were not used, and what held when it was found."""

    key: CacheKey
    body: bytes
    unused: Unused
    valid_while: SnapshotState

    @property
    def revision(self) -> int:
        return self.valid_while.offset

    @property
    def version_id(self) -> int | None:
        return self.valid_while.version

    @property
    def seen(self) -> Seen:
        return self.valid_while.seen


def _bytes_of(answer: CachedAnswer) -> int:
    return len(answer.key[-1]) + len(answer.body) + _OVERHEAD + _OF_UNUSED * len(answer.unused.kinds)


_answers: Cache[CacheKey, CachedAnswer] = Cache(configured.ANSWER_CACHE, _bytes_of)
_latest: dict[int, SnapshotState] = {}  # by environment, as far as this process has seen
# Hashes of requests; one is overwritten when another takes its place.
_seen = array("q", [0]) * _MOST_SEEN


def cache_key(who: Caller, what: str, body: bytes) -> CacheKey | None:
    """Return the key of the request's answer; None if the cache is off, or the request comes for the first time."""
    if not configured.ANSWER_CACHE:
        return None
    key = (who.environment_id, what, body)
    number = hash(key)
    place = number % _MOST_SEEN
    if _seen[place] != number:
        _seen[place] = number
        return None
    return key


def lookup(who: Caller, key: CacheKey) -> CachedAnswer | None:
    """Return the answer that the same request was given before, if nothing has changed since."""
    found = _answers.get(key)
    if found is None or found.valid_while != _latest.get(who.environment_id):
        return None
    now = confirmed(who)  # one statement, which also checks the key
    _note(who, now)
    if found.valid_while != now:
        return None
    if spans.is_on:
        spans.add(_CONFIRMED)
    return found


def store(key: CacheKey, found: AnswerSource, body: bytes) -> None:
    """Store an answer, unless it has no `valid_while`, is too large, or was found within a transaction.

    A transaction makes its changes bit by bit under one moment, which others see only once all of it is committed. An
    answer from in between would be wrong under that moment.
    """
    if found.valid_while is None or run.in_transaction():
        return
    answer = CachedAnswer(key, body, found.unused, found.valid_while)
    if _bytes_of(answer) <= configured.ANSWER_CACHE / _SHARE:
        _answers.store(key, answer)


def note(who: Caller, found: AnswerSource) -> None:
    """Note what held when an answer was found, whether or not it is stored."""
    if found.valid_while is not None:
        _note(who, found.valid_while)


def _note(who: Caller, state: SnapshotState) -> None:
    if len(_latest) >= _MOST_ENVIRONMENTS:
        _latest.clear()
    _latest[who.environment_id] = state
