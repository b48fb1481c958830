"""Report the status of replicas: in lines for people, and in numbers for metrics."""

import time
from math import isfinite
from typing import Any, NamedTuple

from policy.core.config import settings
from policy.replicas.reading import watch

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


def line_of(status: ReplicaStatus) -> str:
    """Describe the status in one line: `replica db2:5432 is in use, lag 0.4 s`."""
    return f"replica {status.name} is {state_of(status)}"


def state_of(status: ReplicaStatus) -> str:
    if not status.is_used:
        return f"not in use: {status.reason}"
    return "in use" if status.lag is None else f"in use, lag {status.lag:.1f} s"


def described() -> list[str]:
    """Probe each replica now, and return a line about the status of each."""
    return [line_of(each) for each in looked_at()]


def _status_of(replica: Any, timeline: int, now: float) -> ReplicaStatus:
    is_used = replica.may_be_asked(settings.REPLICA_MAX_LAG, timeline, now)
    reason = "" if is_used else replica.reason or "it does not respond"
    lag = now - replica.fresh_at
    counts = (replica.asked, replica.tries, replica.answers)
    # A replica that was up to date at the last probe is not behind merely because time has passed since.
    shown = max(0.0, lag - _BETWEEN_LOOKS) if isfinite(lag) else None
    return ReplicaStatus(replica.name, is_used, reason, replica.position or None, shown, *counts, replica.is_stranger)
