"""Read from a replica; or from the primary, if no replica is eligible, or if the replica's answer is not valid.

An attempt is a function that makes all reads of one answer. On a replica it may fail for any reason, or read a snapshot
that is older than what this process knows of the primary, or than what the caller has seen. The same attempt is then
made on the primary, and the caller gets that answer, or its error. The status of replicas is reported here, too.
"""

import time
from collections.abc import Callable
from importlib import import_module
from math import isfinite
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections

from policy.active import Caller, Seen
from policy.core import spaces
from policy.core.clock import SERVER
from policy.core.config import settings
from policy.values import whole_number

NOWHERE = 2**63 - 1  # a position that no environment has
POSITIONED = "positioned"  # of REPLICA_READS: only requests that send a position

T = TypeVar("T")


class AttemptResult(NamedTuple, Generic[T]):
    """The result of an attempt, and its snapshot, which must not be older than the revision `least`."""

    result: T
    seen: Seen
    least: int = 0


class Primary:
    """A hook that runs before reads from the primary, and this process's `ReplicaWatch`."""

    prepare: Callable[[], object] = staticmethod(lambda: None)  # set by the app above
    watch: Any = None


primary = Primary()
_beginning = Lock()


def watch() -> Any:
    """Return this process's `ReplicaWatch`. It is imported late because it needs PostgreSQL's driver."""
    if primary.watch is None:
        with _beginning:
            if primary.watch is None:
                primary.watch = import_module("policy.replicas.watch").ReplicaWatch()
    return primary.watch


def read(who: Caller, position: int | None, attempt: Callable[[], AttemptResult[T]]) -> T:
    """Return the attempt's result, from a replica or the primary.

    `position` is the revision that the caller has seen; None if it sent none.
    """
    if not settings.REPLICAS:
        return attempt().result
    asked: list[Any] = []
    found = _on_replica(who, position, attempt, asked)
    if found is None:
        found = _on_primary(who, position, attempt, asked)
    return found.result


def note_change(environment_id: int, offset: int) -> None:
    """Note a change that this process has committed, if there are replicas."""
    watch().known.learn(environment_id, Seen(offset))


def position_of(text: str) -> int | None:
    """Parse the position in a header; return None if the header is empty.

    An invalid one becomes `NOWHERE`, which no replica has reached, so that the primary answers.
    """
    if not text:
        return None
    position = whole_number(text, NOWHERE)
    return NOWHERE if position is None else position


def _on_primary(
    who: Caller, position: int | None, attempt: Callable[[], AttemptResult[T]], asked: list[Any]
) -> AttemptResult[T]:
    """Run the attempt on the primary; if that is down and a replica was tried before, on another replica."""
    try:
        primary.prepare()
        found = attempt()
    except (OperationalError, InterfaceError):
        other = _on_replica(who, position, attempt, asked) if asked else None
        if other is not None:
            return other
        if _is_connected():
            raise
        found = attempt()  # on a new connection: another server may have been promoted
    watch().known.learn(who.environment_id, found.seen)
    return found


def _is_connected() -> bool:
    """Return whether a new connection to the primary would not help.

    A broken connection outside of a transaction is closed: then a new one would.
    """
    mine = connections[DEFAULT_DB_ALIAS]
    if mine.connection is None or mine.in_atomic_block or mine.is_usable():
        return True
    mine.close()
    return False


def _on_replica(
    who: Caller, position: int | None, attempt: Callable[[], AttemptResult[T]], asked: list[Any]
) -> AttemptResult[T] | None:
    """Run the attempt on a replica not tried before; return None if there is none, or if its answer is not valid."""
    if who.confirmed:  # by the primary: reads of the primary and of a replica must not be mixed
        return None
    if position == NOWHERE or (position is None and settings.REPLICA_READS == POSITIONED):
        return None
    usual = connections[DEFAULT_DB_ALIAS]
    if usual.in_atomic_block:  # only this connection sees the transaction's changes
        return None
    if spaces.current() and (usual.settings_dict.get(SERVER) or getattr(usual, "is_citus", True)):
        return None  # it is on another server, or may be: replicas are those of the home database's
    watching = watch()
    replica = watching.chosen(who.key_hash, asked)
    if replica is None:
        return None
    asked.append(replica)
    found: AttemptResult[T] | None = watching.tried(replica, usual, attempt)
    least = position or 0
    if found is None or not watching.known.takes(who.environment_id, max(least, found.least), found.seen):
        return None
    needed = watching.known.position_of_key(who.key_hash)
    may_be_asked = replica.may_be_asked(settings.REPLICA_MAX_LAG, watching.known.timeline, time.monotonic())
    if needed is None or replica.position < needed or not may_be_asked:
        return None  # what became known meanwhile invalidates the answer
    replica.count()
    if least:
        watching.known.learn(who.environment_id, Seen(least))
    return found


# ---- The status of replicas: in lines for people, and in numbers for metrics --------------------------------------

UNCHECKED = "not checked yet"  # the reason of a replica that this process has not probed
_BETWEEN_LOOKS = 2.0  # seconds that pass between probes in any case, and are no lag


class ReplicaStatus(NamedTuple):
    name: str  # its host and port
    is_used: bool
    reason: str  # why it is not used
    position: int | None  # bytes of the primary's log that it has replayed; None: unknown
    lag: float | None  # seconds; None: unknown
    asked: int  # queries running on it now
    tries: int  # queries sent to it in total
    answers: int  # how many of those had valid answers; the others were repeated on the primary
    is_stranger: bool = False  # a copy of another database, which is a configuration error


def statuses() -> list[ReplicaStatus]:
    """Return the status of each replica, as far as this process knows: it probes them only once it has queries."""
    if not settings.REPLICAS:
        return []
    watching, now = watch(), time.monotonic()
    return [_status_of(each, watching.known.timeline, now) for each in watching.replicas]


def looked_at() -> list[ReplicaStatus]:
    """Probe each server now, and return the status of each replica."""
    if settings.REPLICAS:
        watch().look_once()
    return statuses()


def state_of(status: ReplicaStatus) -> str:
    """Describe the status: `in use, lag 0.4 s`."""
    if not status.is_used:
        return f"not in use: {status.reason}"
    return "in use" if status.lag is None else f"in use, lag {status.lag:.1f} s"


def _status_of(replica: Any, timeline: int, now: float) -> ReplicaStatus:
    is_used = replica.may_be_asked(settings.REPLICA_MAX_LAG, timeline, now)
    reason = "" if is_used else replica.reason or "it does not respond"
    lag = now - replica.fresh_at
    counts = (replica.asked, replica.tries, replica.answers)
    # A replica that was up to date at the last probe is not behind merely because time has passed since.
    shown = max(0.0, lag - _BETWEEN_LOOKS) if isfinite(lag) else None
    return ReplicaStatus(replica.name, is_used, reason, replica.position or None, shown, *counts, replica.is_stranger)
