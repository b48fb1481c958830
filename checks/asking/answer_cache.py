"""An exact cache of answers to repeated requests: the database confirms each answer before it is used again.

An answer is stored with the state of its snapshot: the policy version, and the moment, a random number that changes
with every change of the environment. When the request is repeated, one small statement checks the key and reads the
current state. If that is the same, the cached answer is sent. All else that an answer depends on is in the request, and
the whole request is the cache key.

A process remembers the latest moment that its statements saw. An answer of another moment is not worth confirming: the
question is run at once. So a question that is new, or new since a change, costs one statement, as without a cache. The
answer to a request's first occurrence is not stored, since most requests are never repeated.
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

CacheKey = tuple[int, str, bytes]  # environment, operation, and request body
_OVERHEAD = 1_000  # bytes of the smallest answer, including its entries in tables
_OF_UNUSED = 12_000  # maximum size in bytes of a description of unused context facts
_CONFIRMED: spans.Noted = ("kept", 0.0, 0.0, {})
_SHARE = 8  # answers larger than 1/_SHARE of the cache are not stored
_MOST_ENVIRONMENTS = 10_000
_MOST_SEEN = 1 << 16


class AnswerSource(Protocol):
    """An answer and where it comes from."""

    @property
    def unused(self) -> Unused: ...  # of the question's context
    @property
    def revision(self) -> int: ...  # of the facts
    @property
    def version_id(self) -> int | None: ...  # of the policy that answered
    @property
    def valid_while(self) -> SnapshotState | None: ...  # the answer holds as long as this does; None: do not cache it
    @property
    def seen(self) -> Seen: ...  # the environment's position then


class CachedAnswer(NamedTuple):
    """An answer as JSON, its unused context facts, and the state in which it was computed."""

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
_latest: dict[int, SnapshotState] = {}  # by environment, as far as this process knows
# Hashes of requests; a new one overwrites whichever has its place.
_seen = array("q", [0]) * _MOST_SEEN


def cache_key(who: Caller, what: str, body: bytes) -> CacheKey | None:
    """Return the cache key of the request; None if the cache is off, or the request occurs for the first time."""
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
    """Return the cached answer to the same request, if nothing has changed since."""
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
    """Store an answer, unless it has no `valid_while`, is too large, or was computed within a transaction.

    A transaction makes several changes under one moment, which others see only after the commit. An answer from in
    between would be wrong for that moment.
    """
    if found.valid_while is None or run.in_transaction():
        return
    answer = CachedAnswer(key, body, found.unused, found.valid_while)
    if _bytes_of(answer) <= configured.ANSWER_CACHE / _SHARE:
        _answers.store(key, answer)


def note(who: Caller, found: AnswerSource) -> None:
    """Record the state that an answer was computed in, whether or not the answer is stored."""
    if found.valid_while is not None:
        _note(who, found.valid_while)


def _note(who: Caller, state: SnapshotState) -> None:
    if len(_latest) >= _MOST_ENVIRONMENTS:
        _latest.clear()
    _latest[who.environment_id] = state
