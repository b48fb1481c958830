"""What all endpoints that answer questions share: the answer cache, replicas, and the decision log."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from array import array
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import orjson

from checks.asking import run
from checks.asking.ask import confirmed
from checks.asking.question import Cache, SnapshotState
from checks.decisions.log import note
from facts.accept import HEADER, WARNING, Unused, line_of
from policy.active import Caller, Seen
from policy.core import spans
from policy.core.config import settings
from policy.endpoint import OFFSET, Endpoint, Request, Response, is_published_client, position_seen, unconfirmed_caller
from policy.replicas.reading import AttemptResult, read
from policy.scopes import Scope

log = logging.getLogger("authz.request")

# ---- answers ------------------------------------------------------------------------------------------------------


class AnswerSource(Protocol):
    """An answer and where it comes from."""

    @property
    def unused(self) -> Unused: ...  # of the question's context
    @property
    def warning(self) -> str: ...  # about words of the question that the policy does not have
    @property
    def revision(self) -> int: ...  # of the facts
    @property
    def version_id(self) -> int | None: ...  # of the policy that answered
    @property
    def valid_while(self) -> SnapshotState | None: ...  # the answer holds as long as this does; None: do not cache it
    @property
    def seen(self) -> Seen: ...  # the environment's position then


# ---- endpoints ----------------------------------------------------------------------------------------------------


class Asking(Endpoint):
    """An endpoint whose statements confirm the caller's key, with the scope for questions, whatever it names."""

    scopes: ClassVar = {"POST": Scope.READ}


Reply = tuple[object, AnswerSource]  # the response body, and the answer it was made from


class LoggedReply(NamedTuple):
    """A reply as it is sent, and as the decision log records it."""

    body: object
    found: AnswerSource
    logged: object  # the body for the decision log


class Answering(Asking, ABC):
    """Answers a question; a request that comes again, from the cache, if the database confirms that nothing changed."""

    questions: ClassVar = {"POST"}
    takes_context = takes_moment = True
    is_of_now = False  # whether it answers as of now only

    def post(self, request: Request) -> Response:
        who = unconfirmed_caller(request)
        key = cache_key(who, self._what(request), request.body)
        replied = self._replica_reply if settings.REPLICAS else self._logged_reply
        reply = replied(request, who, key)
        found = reply.found
        note(request, who, reply.logged, found.revision, found.version_id)
        headers = {OFFSET: str(found.revision)}
        if found.unused.kinds:
            headers[HEADER] = line_of(found.unused)
            log.info("request %s: context facts %s", request.id, headers[HEADER])
        if warning := found.warning:
            headers[WARNING] = warning
        return Response(reply.body, headers=headers)

    def _replica_reply(self, request: Request, who: Caller, key: CacheKey | None) -> LoggedReply:
        """Return a replica's answer, or the primary's if the replica fails or may be stale."""

        def attempt() -> AttemptResult[LoggedReply]:
            reply = self._logged_reply(request, who, key)
            return AttemptResult(reply, reply.found.seen, self.least(request))

        return read(who, position_seen(request), attempt)

    def _logged_reply(self, request: Request, who: Caller, key: CacheKey | None) -> LoggedReply:
        cached = lookup(who, key) if key else None
        if cached is not None:
            return LoggedReply(cached.body, cached, cached.body)
        logged, found = self.reply(request, who)
        note_state(who, found)
        if not key:
            return LoggedReply(logged, found, logged)
        body = orjson.dumps(logged)
        store(key, found, body)
        return LoggedReply(body, found, logged)

    def least(self, request: Request) -> int:
        """Return the minimum revision of the answer: that of the page which a request continues, or 0."""
        return 0

    def _what(self, request: Request) -> str:
        """Return the part of the cache key that identifies the endpoint, and whether a published client asks."""
        return self._names[is_published_client(request)]

    @cached_property
    def _names(self) -> tuple[str, str]:
        mine = type(self)
        name = f"{mine.__module__} {mine.__name__}"
        return name, f"{name} of a published client"

    @abstractmethod
    def reply(self, request: Request, who: Caller) -> Reply:
        """Answer the request, using only its body and whether a published client sent it: the cache key has no more."""


# ---- the cache ----------------------------------------------------------------------------------------------------
# An exact cache of answers to repeated requests: the database confirms each answer before it is used again.
#
# An answer is stored with the state of its snapshot: the policy version, and the moment, a random number that changes
# with every change of the environment. When the request is repeated, one small statement checks the key and reads the
# current state. If that is the same, the cached answer is sent. All else that an answer depends on is in the request,
# and the whole request is the cache key.
#
# A process remembers the latest moment that its statements saw. An answer of another moment is not worth confirming:
# the question is run at once. So a question that is new, or new since a change, costs one statement, as without a
# cache. The answer to a request's first occurrence is not stored, since most requests are never repeated.

CacheKey = tuple[int, str, bytes]  # environment, operation, and request body
_OVERHEAD = 1_000  # bytes of the smallest answer, including its entries in tables
_OF_UNUSED = 12_000  # maximum size in bytes of a description of unused context facts
_CONFIRMED: spans.Noted = ("kept", 0.0, 0.0, {})
_SHARE = 8  # answers larger than 1/_SHARE of the cache are not stored
_MOST_ENVIRONMENTS = 10_000
_MOST_SEEN = 1 << 16


class CachedAnswer(NamedTuple):
    """An answer as JSON, its unused context facts, and the state in which it was computed."""

    key: CacheKey
    body: bytes
    unused: Unused
    valid_while: SnapshotState
    warning: str = ""

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
    return (
        len(answer.key[-1]) + len(answer.body) + len(answer.warning) + _OVERHEAD + _OF_UNUSED * len(answer.unused.kinds)
    )


_answers: Cache[CacheKey, CachedAnswer] = Cache(settings.ANSWER_CACHE, _bytes_of)
_latest: dict[int, SnapshotState] = {}  # by environment, as far as this process knows
# Hashes of requests; a new one overwrites whichever has its place.
_seen = array("q", [0]) * _MOST_SEEN


def cache_key(who: Caller, what: str, body: bytes) -> CacheKey | None:
    """Return the cache key of the request; None if the cache is off, or the request occurs for the first time."""
    if not settings.ANSWER_CACHE:
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
    answer = CachedAnswer(key, body, found.unused, found.valid_while, found.warning)
    if _bytes_of(answer) <= settings.ANSWER_CACHE / _SHARE:
        _answers.store(key, answer)


def note_state(who: Caller, found: AnswerSource) -> None:
    """Record the state that an answer was computed in, whether or not the answer is stored."""
    if found.valid_while is not None:
        _note(who, found.valid_while)


def _note(who: Caller, state: SnapshotState) -> None:
    if len(_latest) >= _MOST_ENVIRONMENTS:
        _latest.clear()
    _latest[who.environment_id] = state
