"""One replica: what is known of it, whether it may be asked, and which questions it is asked now."""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import suppress
from math import inf
from threading import Event, Lock
from typing import Any, NamedTuple

log = logging.getLogger("authz.database")

NEWS_WITHIN = 3.5  # seconds: a replica that has not answered a probe for longer is not asked
GRACE = 0.5  # seconds beyond its timeout for a statement to be ended by the server itself
SINCE = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"  # when a server was started: which it is
STRANGER = "it replicates another database, not the primary"
NOT_IN_RECOVERY = "it is not a replica: it accepts writes"
FORKED = "it has diverged from the primary; recreate it from the primary"
CLOCKS_APART = 1.0  # seconds: with more, facts with an end would end at another time


class Clock(NamedTuple):
    """A server's clock minus our `monotonic` clock, in seconds, give or take the error: to compare servers by."""

    ahead: float
    error: float


class Probe(NamedTuple):
    """What a replica says of itself."""

    started: float
    in_recovery: bool
    position: int  # up to where it has replayed the primary's log
    timeline: int  # the one that it follows; 0: the role may not know
    identifier: str  # of the cluster that it is a copy of; empty: the role may not know
    since: int  # when its server was started
    clock: Clock


class Running(NamedTuple):
    """A question that a replica is answering."""

    raw: Any  # its connection
    since: float
    until: float


class Replica:
    def __init__(self, alias: str, name: str):
        self.alias = alias
        self.name = name
        self.reason = "not checked yet"  # why it is left out; empty: it is not
        self.probe: Probe | None = None  # the last one
        self.fresh_at = -inf  # it has all that was committed by then, by `monotonic`
        self.timeline = 0  # the latest that it has followed since its server was started
        self.must_look = Event()
        self.lost_at = -inf  # connections that were last found in order before then may be broken
        self.answers = 0  # those that counted
        self.tries = 0  # questions that it was asked
        self._forked_since: int | None = None  # `since` of the server that has forked
        self._running: dict[int, Running] = {}
        self._lock = Lock()

    # ---- whether to ask ----------------------------------------------------------------------------------------

    def may_be_asked(self, most_lag: float, timeline: int, now: float) -> bool:
        """Say whether the replica was looked at lately, lags by `most_lag` at most, and is on the timeline."""
        probe = self.probe
        if self.reason or probe is None or now - probe.started > NEWS_WITHIN or now - self.fresh_at > most_lag:
            return False
        return self.timeline in (0, timeline)

    @property
    def position(self) -> int:
        return 0 if self.probe is None else self.probe.position

    @property
    def is_stranger(self) -> bool:
        return self.reason == STRANGER

    @property
    def asked(self) -> int:
        """Return how many questions it answers now."""
        return len(self._running)

    def note(self, probe: Probe, fresh_at: float) -> None:
        """Take in a probe. If the server was started anew, what was known of it before counts no more."""
        if self.probe is None or self.probe.since != probe.since:
            self.timeline, self.fresh_at = 0, -inf
            self.lose()
        self.probe = probe
        self.timeline = max(self.timeline, probe.timeline)
        self.fresh_at = max(self.fresh_at, fresh_at)

    def lose(self) -> None:
        """Have each thread make its connection anew, so that a restart costs one failed attempt, not one for each."""
        self.lost_at = time.monotonic()

    def note_fork(self) -> None:
        """Leave it out until its server restarts: it has forked, since it has changes that the primary has not."""
        if self.probe is not None:
            self._forked_since = self.probe.since
            self.judge(FORKED)

    @property
    def is_forked(self) -> bool:
        return self.probe is not None and self._forked_since == self.probe.since

    def judge(self, reason: str) -> None:
        """Leave it out for this reason; use it if the reason is empty."""
        if reason and not self.reason:
            log.warning("replica %s is not in use: %s", self.name, reason)
        elif self.reason and not reason:
            log.info("replica %s is in use", self.name)
        self.reason = reason

    def doubt(self, reason: str) -> None:
        """Leave it out until its next probe, and have that made soon."""
        self.judge(reason)
        self.must_look.set()

    # ---- who asks ------------------------------------------------------------------------------------------------

    def enter(self, raw: Any, limit: float) -> int:
        """Note that a question begins, and return its number for `leave`."""
        now = time.monotonic()
        with self._lock:
            self.tries += 1
            self._running[self.tries] = Running(raw, now, now + limit + GRACE if limit else inf)
            return self.tries

    def leave(self, number: int) -> None:
        with self._lock:
            del self._running[number]

    def count(self) -> None:
        """Count an answer that was taken."""
        with self._lock:
            self.answers += 1

    def end_what_hangs(self, before: float = -inf) -> None:
        """End questions whose time is over, and those that began `before`. Their threads then ask the primary."""
        if not self._running:
            return
        now = time.monotonic()
        with self._lock:  # no question leaves meanwhile, so each file descriptor is still its connection's
            for each in self._running.values():
                if each.until < now or each.since < before:
                    _cut(each.raw)


def _cut(raw: Any) -> None:
    """Shut down a connection that another thread waits on."""
    with suppress(Exception), socket.socket(fileno=os.dup(raw.pgconn.socket)) as copy:
        copy.shutdown(socket.SHUT_RDWR)
