"""Answers that are kept, for whoever sends the same request again: exact, since nothing is trusted but the database.

An answer is kept with what held in the snapshot that it was read from: the policy version, and the moment, a number
that is drawn by lot with every change of the environment. Who asks again is given it once the database says, with the
check of the key, that the same holds now. All else that an answer depends on is in the request, and the whole request
is what answers are found by.

Which moment is the latest, a process only guesses, by what its statements saw: where an answer cannot be good any more,
the question is asked at once. So a question that is new, or new since a change, is one statement, as it always is. And
nothing is kept for a request that comes for the first time: most that do never come again.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from checks.asking import run
from checks.asking.askers import confirmed
from checks.asking.confirmation import Holding
from checks.asking.remembered import Remembered
from facts.accept import Unused
from policy import noticing
from policy.active import Caller, Seen
from policy.configured import configured

Asked = tuple[int, str, bytes]  # an environment, what is asked of it, and the body of the request
_OVERHEAD = 1_000  # bytes that the smallest answer takes, with its places in tables
_OF_UNUSED = 12_000  # bytes of what can be said of one kind of context facts that count for nothing
_CONFIRMED: noticing.Noted = ("kept", 0.0, 0.0, {})
_SHARE = 8  # an answer that is larger than this part of the room is not kept
_MOST_ENVIRONMENTS = 10_000
_MOST_SEEN = 1 << 16


class Found(Protocol):
    """How an answer was found."""

    @property
    def unused(self) -> Unused: ...  # of the question's context
    @property
    def revision(self) -> int: ...  # that is answered
    @property
    def version_id(self) -> int | None: ...  # the policy's by which it is
    @property
    def holding(self) -> Holding | None: ...  # while that holds, so does the answer; None: it is not to be kept
    @property
    def seen(self) -> Seen: ...  # how far the environment was then


class Kept(NamedTuple):
    """An answer as JSON, what of the question's context counted for nothing, and under what it was found."""

    asked: Asked
    body: bytes
    unused: Unused
    holding: Holding

    @property
    def revision(self) -> int:
        return self.holding.offset

    @property
    def version_id(self) -> int | None:
        return self.holding.version

    @property
    def seen(self) -> Seen:
        return self.holding.seen


def _bytes_of(answer: Kept) -> int:
    return len(answer.asked[-1]) + len(answer.body) + _OVERHEAD + _OF_UNUSED * len(answer.unused.kinds)


_answers: Remembered[Asked, Kept] = Remembered(configured.ANSWER_CACHE, _bytes_of)
_latest: dict[int, Holding] = {}  # by environment, as far as this process has seen
_seen = [0] * _MOST_SEEN  # hashes of requests, each in its place, as long as no other needs that


def asked_again(who: Caller, what: str, body: bytes) -> Asked | None:
    """Return what the answer is kept by; None where none is.

    That is, where nothing is kept at all, or when the request comes for the first time.
    """
    if not configured.ANSWER_CACHE:
        return None
    asked = (who.environment_id, what, body)
    number = hash(asked)
    place = number % _MOST_SEEN
    if _seen[place] != number:
        _seen[place] = number
        return None
    return asked


def kept(who: Caller, asked: Asked) -> Kept | None:
    """Return the answer that the same request was given before, if nothing has changed since."""
    found = _answers.get(asked)
    if found is None or found.holding != _latest.get(who.environment_id):
        return None
    now = confirmed(who)  # whose one statement has a question's time
    _note(who, now)
    if found.holding != now:
        return None
    if noticing.is_on:
        noticing.add(_CONFIRMED)
    return found


def keep(asked: Asked, found: Found, body: bytes) -> None:
    """Keep an answer, unless it is good for this time only or too large.

    None is kept within a transaction: what that changes comes bit by bit at one moment, which nobody else sees until
    all of it is committed. So what is kept under a moment is true at it, for those who ask within a transaction too.
    """
    if found.holding is None or run.in_transaction():
        return
    answer = Kept(asked, body, found.unused, found.holding)
    if _bytes_of(answer) <= configured.ANSWER_CACHE / _SHARE:
        _answers.keep(asked, answer)


def note(who: Caller, found: Found) -> None:
    """Note what held when an answer was found, kept or not."""
    if found.holding is not None:
        _note(who, found.holding)


def _note(who: Caller, holding: Holding) -> None:
    if len(_latest) >= _MOST_ENVIRONMENTS:
        _latest.clear()
    _latest[who.environment_id] = holding
