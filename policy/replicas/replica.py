"""One replica: its state, the connection with which it is probed, and an attempt to read from it."""

import logging
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from threading import Event, Lock
from typing import Any, NamedTuple, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

from policy.core import spaces
from policy.core.clock import NUMBER, timeline_of
from policy.core.config import settings
from policy.errors import one_line
from policy.replicas.reading import UNCHECKED

log = logging.getLogger("authz.database")

# ---- replica ------------------------------------------------------------------------------------------------------
# One replica: what is known of it, whether it is eligible, and which queries run on it now.


NEWS_WITHIN = 3.5  # seconds: a replica whose last successful probe is older is not used
GRACE = 0.5  # seconds beyond its timeout in which the server itself may cancel a statement
SINCE = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"  # start time of a server: identifies it
STRANGER = "it replicates another database, not the primary"
NOT_IN_RECOVERY = "it is not a replica: it accepts writes"
FORKED = "it has diverged from the primary; recreate it from the primary"
CLOCKS_APART = 1.0  # seconds: with more, facts would expire at another time


class Clock(NamedTuple):
    """A server's clock minus our `monotonic` clock, in seconds, with its error: used to compare the servers' clocks."""

    ahead: float
    error: float


class Probe(NamedTuple):
    """What a replica reports about itself."""

    started: float
    in_recovery: bool
    position: int  # up to which it has replayed the primary's log (WAL)
    timeline: int  # the one that it follows; 0: the role may not read it
    identifier: str  # of the cluster that it is a copy of; empty: the role may not read it
    since: int  # when its server was started
    clock: Clock


class Running(NamedTuple):
    """A query that a replica is executing."""

    raw: Any  # its connection
    since: float
    until: float


class Replica:
    def __init__(self, alias: str, name: str):
        self.alias = alias
        self.name = name
        self.reason = UNCHECKED  # why it is excluded; empty: it is not
        self.probe: Probe | None = None  # the last one
        self.fresh_at = -inf  # it has everything that was committed by then, by `monotonic`
        self.timeline = 0  # the latest that it has followed since its server started
        self.must_look = Event()
        self.lost_at = -inf  # connections last verified before then may be broken
        self.answers = 0  # valid ones
        self.tries = 0  # queries sent to it
        self._forked_since: int | None = None  # `since` of the server that has diverged
        self._running: dict[int, Running] = {}
        self._lock = Lock()

    # ---- eligibility -------------------------------------------------------------------------------------------

    def may_be_asked(self, most_lag: float, timeline: int, now: float) -> bool:
        """Return whether the replica was probed recently, has a lag of at most `most_lag`, and is on the timeline."""
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
        """Return how many queries run on it now."""
        return len(self._running)

    def note(self, probe: Probe, fresh_at: float) -> None:
        """Record a probe. If the server has restarted, discard what was known of it before."""
        if self.probe is None or self.probe.since != probe.since:
            self.timeline, self.fresh_at = 0, -inf
            self.lose()
        self.probe = probe
        self.timeline = max(self.timeline, probe.timeline)
        self.fresh_at = max(self.fresh_at, fresh_at)

    def lose(self) -> None:
        """Make each thread reconnect, so that a restart costs one failed attempt, not one per thread."""
        self.lost_at = time.monotonic()

    def note_fork(self) -> None:
        """Exclude it until its server restarts: it has diverged, since it has changes that the primary has not."""
        if self.probe is not None:
            self._forked_since = self.probe.since
            self.judge(FORKED)

    @property
    def is_forked(self) -> bool:
        return self.probe is not None and self._forked_since == self.probe.since

    def judge(self, reason: str) -> None:
        """Exclude it for this reason; include it if the reason is empty."""
        if reason and not self.reason:
            log.warning("replica %s is not in use: %s", self.name, reason)
        elif self.reason and not reason:
            log.info("replica %s is in use", self.name)
        self.reason = reason

    def doubt(self, reason: str) -> None:
        """Exclude it until its next probe, which is made soon."""
        self.judge(reason)
        self.must_look.set()

    # ---- running queries -----------------------------------------------------------------------------------------

    def enter(self, raw: Any, limit: float) -> int:
        """Register a query, and return its number for `leave`."""
        now = time.monotonic()
        with self._lock:
            self.tries += 1
            self._running[self.tries] = Running(raw, now, now + limit + GRACE if limit else inf)
            return self.tries

    def leave(self, number: int) -> None:
        with self._lock:
            del self._running[number]

    def count(self) -> None:
        """Count a valid answer."""
        with self._lock:
            self.answers += 1

    def end_what_hangs(self, before: float = -inf) -> None:
        """Abort queries that timed out or began earlier than `before`. Their threads then ask the primary."""
        if not self._running:
            return
        now = time.monotonic()
        with self._lock:  # no query ends meanwhile, so each file descriptor is still its connection's
            for each in self._running.values():
                if each.until < now or each.since < before:
                    _cut(each.raw)


def _cut(raw: Any) -> None:
    """Shut down a connection on which another thread is waiting."""
    with suppress(Exception), socket.socket(fileno=os.dup(raw.pgconn.socket)) as copy:
        copy.shutdown(socket.SHUT_RDWR)


# ---- server -------------------------------------------------------------------------------------------------------
# The connection with which a server is probed, with short timeouts; and which of several primaries is current.


ANSWER_WITHIN = 1.0  # seconds
CONNECT_WITHIN = 2  # seconds, to a server that is only compared with another one
_SHARE = 0.05  # maximum share of time that new connections may spend on comparing: a server may not respond

_compare_at = 0.0  # when the servers may be compared again, by `monotonic`


class Unresponsive(Exception):
    """The server does not respond."""


class Server:
    """A connection to one of the configured databases. Connecting and answering have timeouts."""

    def __init__(self, alias: str):
        self.alias = alias
        self.may_know = False  # whether the role may read the control file
        self._raw: Any = None

    def ask(self, sql: str, values: list[str | None] | None = None, within: float = ANSWER_WITHIN) -> list[tuple]:
        """Return the rows of a small statement. After any failure, the next statement uses a new connection."""
        try:
            if self._raw is None:
                self._raw = self._connected()
            return answered(self._raw, sql, values or [], time.monotonic() + within)
        except Exception:
            self.close()
            raise

    @property
    def is_connected(self) -> bool:
        return self._raw is not None

    def close(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            with suppress(Exception):
                raw.close()

    def _connected(self) -> Any:
        wrapper = connections.create_connection(self.alias)
        raw = psycopg.connect(**wrapper.get_connection_params())
        if self.alias == DEFAULT_DB_ALIAS and "," in wrapper.settings_dict["HOST"]:
            raw, _ = newest(wrapper, raw)
        raw.autocommit = True
        return raw


def answered(raw: Any, sql: str, values: list[str | None], until: float) -> list[tuple]:
    """Return the rows of a small statement; raise `Unresponsive` if the server does not respond by `until`."""
    link = raw.pgconn
    link.send_query_params(sql.encode(), [None if each is None else each.encode() for each in values])
    waiting = select.poll()
    waiting.register(link.socket, select.POLLIN)
    while link.is_busy():
        if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
            raise Unresponsive("it does not respond")
        link.consume_input()
    result = link.get_result()
    while link.get_result() is not None:
        pass
    if result.status != ExecStatus.TUPLES_OK:
        raise error_from_result(result)
    read = Transformer(raw)
    read.set_pgresult(result)
    return read.load_rows(0, result.ntuples, tuple)


def newest(wrapper: Any, raw: Any) -> tuple[Any, int]:
    """Return a connection to the primary with the latest timeline, and that timeline; 0 if it is unknown.

    This is the given connection, unless the URL names several servers. After a failover, the old primary may still
    accept changes, which are lost once it becomes a standby. The other servers are therefore asked too; the given
    connection is closed if another one is a primary on a later timeline.
    """
    global _compare_at
    best, latest = raw, _timeline_of(raw)
    started = time.monotonic()
    hosts = wrapper.settings_dict["HOST"].split(",")
    if len(hosts) == 1 or not latest or (started < _compare_at and latest >= timeline_of(wrapper).number):
        return best, latest
    for parameters in _others(wrapper, raw, hosts):
        try:
            other = psycopg.connect(**parameters)
            number = _timeline_of(other)
        except (psycopg.Error, OperationalError):  # it is down, or read-only
            continue
        worse = other
        if number > latest:
            best, worse, latest = other, best, number
        worse.close()
    _compare_at = started + (time.monotonic() - started) / _SHARE
    return best, latest


def _others(wrapper: Any, raw: Any, hosts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the connection parameters of each server of the URL except that of the given connection."""
    usual = wrapper.get_connection_params()
    ports = str(usual.get("port") or raw.info.port).split(",")
    for place, host in enumerate(hosts):
        port = ports[place if len(ports) > 1 else 0] or "5432"
        if (host, port) != (raw.info.host, str(raw.info.port)):
            yield {**usual, "host": host, "port": port, "connect_timeout": CONNECT_WITHIN}


def _timeline_of(raw: Any) -> int:
    """Return the timeline of a primary; 0 if the server is in recovery, or if the role may not read it."""
    try:
        return answered(raw, f"SELECT {NUMBER}", [], time.monotonic() + CONNECT_WITHIN)[0][0]
    except Unresponsive as reason:
        raw.close()
        raise OperationalError(f"the database does not respond: {reason}") from None
    except psycopg.DatabaseError as reason:
        if raw.closed:
            raise
        log.debug("cannot read the timeline of the database: %s", reason)
        return 0


# ---- An attempt to read from a replica, which stands in for the default connection ----------------------------------

T = TypeVar("T")


def tried(replica: Replica, usual: Any, attempt: Callable[[], T]) -> T | None:
    """Run `attempt` on the replica instead of the `usual` database and return its result; None if it fails there."""
    try:
        mine: Any = connections[replica.alias]
        if mine.connection is not None and mine.proven_at <= replica.lost_at:  # may be lost along with others
            _close(mine)
        if mine.connection is None:
            _connect(mine)
        if not _is_looked_at(mine, replica):
            return None
        if mine.space != spaces.current():
            _enter(mine, spaces.current())
    except Exception as error:
        replica.doubt(f"unreachable: {one_line(error)}")
        return None
    try:
        found = _found(replica, mine, usual, attempt)
    except Exception as error:
        _let_go_if_broken(replica, mine, error)
        return None
    except BaseException:  # the connection may be in any state
        _close(mine)
        raise
    return found if _is_still_in_order(replica, mine) else None


def _found(replica: Replica, mine: Any, usual: Any, attempt: Callable[[], T]) -> T:
    number = replica.enter(mine.connection, settings.REPLICA_TIMEOUT)
    try:
        connections[DEFAULT_DB_ALIAS] = mine
        return attempt()
    finally:
        connections[DEFAULT_DB_ALIAS] = usual
        replica.leave(number)


def _connect(mine: Any) -> None:
    """Connect, and record in `led_to` which server the connection reached."""
    mine.ensure_connection()
    try:
        mine.led_to = mine.connection, mine.connection.execute(f"SELECT {SINCE}").fetchone()[0]
    except BaseException:
        _close(mine)
        raise
    mine.proven_at, mine.space = time.monotonic(), spaces.HOME


def _enter(mine: Any, space: str) -> None:
    """Have the connection lead to the tables of the space."""
    mine.space = None  # unknown, if this fails
    mine.connection.execute(f'SET search_path = "{space}"' if space else "RESET search_path")
    mine.space = space


def _is_looked_at(mine: Any, replica: Replica) -> bool:
    """Return whether the connection reached the server that was probed; if not, close it.

    One address may lead to several servers.
    """
    raw, since = getattr(mine, "led_to", (None, None))
    if replica.probe is not None and raw is mine.connection and since == replica.probe.since:
        return True
    _close(mine)
    replica.doubt("a connection reached another server, or the server was restarted; give each replica its own address")
    return False


def _is_still_in_order(replica: Replica, mine: Any) -> bool:
    """Return whether the answer came from the standby that was probed. Close the connection if it is not idle now."""
    link = None if mine.connection is None else mine.connection.pgconn
    try:
        is_standby = link is not None and link.parameter_status(b"in_hot_standby") != b"off"
    except Exception:  # it was closed meanwhile
        is_standby = False
    if not is_standby:
        _close(mine)
        replica.doubt(NOT_IN_RECOVERY)
        return False
    if not _is_looked_at(mine, replica):
        return False
    mine.proven_at = time.monotonic()
    if not _is_idle(mine):
        _close(mine)
    return True


def _is_idle(mine: Any) -> bool:
    link = None if mine.connection is None else mine.connection.pgconn
    return (
        link is not None
        and link.status == ConnStatus.OK
        and link.transaction_status == TransactionStatus.IDLE
        and not mine.in_atomic_block
    )


def _close(mine: Any) -> None:
    with suppress(Exception):
        mine.close()


def _let_go_if_broken(replica: Replica, mine: Any, error: Exception) -> None:
    if _is_idle(mine):
        mine.errors_occurred = False
        return
    _close(mine)
    if mine.proven_at > replica.lost_at:  # of connections lost together, only the first marks the replica
        replica.lose()
        replica.doubt(f"connection lost: {one_line(error)}")
