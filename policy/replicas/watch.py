"""Watch the primary and its replicas: their positions, what is known of API keys, and which replica to ask."""

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from threading import Event, Lock
from typing import NamedTuple

from django.db import DEFAULT_DB_ALIAS

from policy.active import MOMENT, Seen, key_check
from policy.core import spaces
from policy.core.clock import NUMBER, is_to_come, timeline
from policy.core.config import settings
from policy.core.threads import start_thread
from policy.errors import one_line
from policy.replicas.replica import (
    CLOCKS_APART,
    FORKED,
    NEWS_WITHIN,
    NOT_IN_RECOVERY,
    SINCE,
    STRANGER,
    Clock,
    Probe,
    Replica,
    Server,
    Unresponsive,
    tried,
)

# ---- known --------------------------------------------------------------------------------------------------------
# What this process knows of the primary. An answer of a replica that is older is not valid.
#
# Of an environment, it knows a revision that has certainly been reached: from a change that was made here, an answer of
# the primary, or a probe of the primary. Of an API key, it knows a position in the primary's log (WAL) at which its row
# was already as it is now. A position that a caller sends in a header applies to that request only; to others it
# applies once a database has confirmed it.

FORGET_AFTER = 600.0  # seconds without a query after which a key is no longer looked up
MOST_KEYS = 10_000


class KeyRow(NamedTuple):
    """What the primary reports about a key."""

    version: int  # differs after each change of the key
    environment_id: int
    seen: Seen


class Look(NamedTuple):
    """What the primary reports at one time."""

    started: float  # by `monotonic`
    timeline: int
    position: int  # in its log, after everything committed by then
    keys: Mapping[str, KeyRow]  # by hash: the requested ones that exist


class _Mark(NamedTuple):
    version: int | None  # None: no such key
    position: int  # what a replica must have replayed to have this version of the key


class Known:
    def __init__(self) -> None:
        self.timeline = 0  # of everything that is known
        self.looked_at = -inf
        self._lock = Lock()
        self._environments: dict[int, Seen] = {}
        self._marks: dict[str, _Mark] = {}
        self._wanted: dict[str, tuple[float, str]] = {}  # by key: when it was last used, and in which space

    # ---- lookups ---------------------------------------------------------------------------------------------

    def position_of_key(self, key_hash: str) -> int | None:
        """Return the position that a replica must have replayed before this key may be used on it; None if unknown.

        The next probe of the primary looks up the key, too.
        """
        if key_hash not in self._wanted and len(self._wanted) >= MOST_KEYS:
            return None
        self._wanted[key_hash] = time.monotonic(), spaces.current()
        mark = self._marks.get(key_hash)
        return None if mark is None or mark.version is None else mark.position

    def takes(self, environment_id: int, least: int, seen: Seen) -> bool:
        """Return whether an answer from the snapshot `seen` is as recent as what is known, and as `least`.

        At exactly the known offset, its moment must be the known one, too.
        """
        known = self._environments.get(environment_id)
        if known is None or seen.offset < max(least, known.offset):
            return False
        return seen.offset > known.offset or known.moment is None or seen.moment == known.moment

    @property
    def wanted(self) -> dict[str, list[str]]:
        """Return the keys to look up, by space; those of the home database even if there are none."""
        found: dict[str, list[str]] = {spaces.HOME: []}
        for key_hash, (_, space) in self._wanted.copy().items():
            found.setdefault(space, []).append(key_hash)
        return found

    # ---- updates ---------------------------------------------------------------------------------------------

    def learn(self, environment_id: int, seen: Seen) -> None:
        """Note that an environment has reached at least this position."""
        with self._lock:
            self._learn(environment_id, seen)

    def look(self, look: Look, asked: Iterable[str]) -> None:
        """Record what the primary reports of the keys that it was `asked` for, and their environments.

        A report on an older timeline is ignored; one on a newer timeline first clears everything that is known.
        """
        with self._lock:
            if look.timeline < self.timeline:
                return
            if look.timeline != self.timeline:
                self._forget()
                self.timeline = look.timeline
            for key_hash in asked:
                row = look.keys.get(key_hash)
                version = None if row is None else row.version
                mark = self._marks.get(key_hash)
                if mark is None or mark.version != version:
                    self._marks[key_hash] = _Mark(version, look.position)
                if row is not None:
                    self._learn(row.environment_id, row.seen)
            self.looked_at = look.started
            before = look.started - FORGET_AFTER
            self._drop(each for each, (last, _) in self._wanted.copy().items() if last < before)

    def drop(self, keys: Iterable[str]) -> None:
        """Forget what is known of these keys."""
        with self._lock:
            self._drop(keys)

    def forget(self) -> None:
        """Forget everything, because another server has been promoted."""
        with self._lock:
            self._forget()

    def _learn(self, environment_id: int, seen: Seen) -> None:
        known = self._environments.get(environment_id)
        if known is None or seen.offset > known.offset or (seen.offset == known.offset and seen.moment is not None):
            self._environments[environment_id] = seen

    def _forget(self) -> None:
        self._environments.clear()
        self._marks.clear()
        self.looked_at = -inf

    def _drop(self, keys: Iterable[str]) -> None:
        for key_hash in keys:
            self._wanted.pop(key_hash, None)
            self._marks.pop(key_hash, None)


# ---- Probe each server every second, with one thread for the primary and one for each replica ---------------------
# The threads start with the first query that a replica might answer, and run for the life of the process.

log = logging.getLogger("authz.database")

LOOK_EVERY = 1.0  # seconds
REPLAYING = 0.1  # seconds that replicas are given to replay what the primary has just reported
_PAGE, _HEADS = 8192, (24, 40)  # of PostgreSQL's log: the size of a page, and of the two kinds of page header, in bytes

_CLOCK = "extract(epoch FROM clock_timestamp())::float8"
_MAY_KNOW = (
    "SELECT has_function_privilege('pg_control_system()', 'execute')"
    " AND has_function_privilege('pg_control_checkpoint()', 'execute')"
    " AND has_function_privilege('pg_control_recovery()', 'execute')"
)
_IDENTIFIER = "(SELECT system_identifier::text FROM pg_control_system())"
# For a role that may not read `pg_stat_wal_receiver`: the control file, which shows a new timeline only with a delay.
_FOLLOWED = (
    "(SELECT GREATEST(c.timeline_id, r.min_recovery_end_timeline)"
    " FROM pg_control_checkpoint() c CROSS JOIN pg_control_recovery() r)"
)
_PROBE = f"""
SELECT pg_is_in_recovery(), (pg_last_wal_replay_lsn() - '0/0')::bigint,
       COALESCE((SELECT received_tli FROM pg_stat_wal_receiver), {{followed}}, 0), COALESCE({{identifier}}, ''),
       {SINCE}, {_CLOCK}
"""
_LOOK = f"""
SELECT h.*, found.*
FROM (
    SELECT {NUMBER}, (pg_current_wal_insert_lsn() - '0/0')::bigint, (pg_current_wal_flush_lsn() - '0/0')::bigint,
           {_CLOCK}, COALESCE({{identifier}}, '')
) h
LEFT JOIN (
    SELECT {{hash}}, {{version}}::text::bigint AS version, e.id, e."offset", {MOMENT} AS moment
    FROM {{before}}ANY($1::text[]){{after}}
) found ON TRUE
"""


class PrimaryState:
    """What the last probe of the primary reported, besides what `known` keeps of it."""

    def __init__(self) -> None:
        self.identifier = ""
        self.clock = Clock(0.0, inf)
        # When each probe began, and up to where the log was flushed then; the latest last.
        self._positions: deque[tuple[float, int]] = deque(maxlen=600)

    def note(self, started: float, flushed: int, identifier: str, clock: Clock, is_other: bool) -> None:
        self.identifier, self.clock = identifier, clock
        if is_other:
            self._positions.clear()
        self._positions.append((started, flushed))

    def fresh_at(self, position: int) -> float:
        """Return when the primary's flushed log last ended at or before this position; -inf if unknown."""
        return next((at for at, reached in reversed(self._positions.copy()) if reached <= position), -inf)


class ReplicaWatch:
    def __init__(self) -> None:
        self.known = Known()
        self.primary = PrimaryState()
        self.replicas = [Replica(alias, settings.REPLICAS[alias]) for alias in settings.REPLICAS]
        self._is_running = False
        self._is_over = Event()
        self._starting = Lock()
        self._turn = 0
        timeline.forgets(self.known.forget)

    # ---- choosing a replica ----------------------------------------------------------------------------------

    def chosen(self, key_hash: str, but: Sequence[Replica] = ()) -> Replica | None:
        """Return the least busy replica that is eligible for this key and is not in `but`; None if there is none."""
        known = self.known
        needed = known.position_of_key(key_hash)
        if not self._is_running:
            self.start()
        if needed is None or known.timeline != timeline.number:
            return None
        now, most = time.monotonic(), settings.REPLICA_MAX_LAG
        if now - known.looked_at > most:
            return None
        self._turn += 1
        count, first = len(self.replicas), self._turn
        best: Replica | None = None
        for place in range(count):
            each = self.replicas[(first + place) % count]
            if (
                (best is None or each.asked < best.asked)
                and each.position >= needed
                and each not in but
                and each.may_be_asked(most, known.timeline, now)
            ):
                best = each
        return best

    tried = staticmethod(tried)

    # ---- probing ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        with self._starting:
            if not self._is_running:
                self._is_running = True
                start_thread("primary", self._keep_looking)
                for each in self.replicas:
                    start_thread(each.alias, self._keep_probing, each)

    def stop(self) -> None:
        """Stop probing, for good."""
        self._is_over.set()
        for each in self.replicas:
            each.must_look.set()

    def look_once(self) -> None:
        """Probe each server now, one after the other. If the primary does not respond, the lag is unknown."""
        server = Server(DEFAULT_DB_ALIAS)
        with suppress(Exception):
            look_at_primary(server, self)
        server.close()
        for each in self.replicas:
            self._probe_with_patience(each, time.monotonic() + NEWS_WITHIN / 2)

    def _probe_with_patience(self, replica: Replica, until: float) -> None:
        """Probe the replica until it has replayed what the primary has reported, or until `until`."""
        server = Server(replica.alias)
        self._probe(server, replica)
        while server.is_connected and replica.fresh_at == -inf and time.monotonic() < until:
            time.sleep(REPLAYING)
            self._probe(server, replica)
        server.close()

    def _keep_looking(self) -> None:
        server, is_lost = Server(DEFAULT_DB_ALIAS), False
        while not self._is_over.is_set():
            try:
                look_at_primary(server, self)
                is_lost = False
            except Exception as error:
                if not is_lost:
                    log.warning("cannot check the primary: %s", one_line(error))
                is_lost = True
            for each in self.replicas:
                each.must_look.set()
            self._is_over.wait(LOOK_EVERY)
        server.close()

    def _keep_probing(self, replica: Replica) -> None:
        server = Server(replica.alias)
        while not self._is_over.is_set():
            self._probe(server, replica)
            replica.must_look.wait(LOOK_EVERY)
            replica.must_look.clear()
            self._is_over.wait(REPLAYING)
        server.close()

    def _probe(self, server: Server, replica: Replica) -> None:
        started = time.monotonic()
        try:
            probe = probed(server)
        except Exception as error:
            replica.lose()
            replica.judge(f"unreachable: {one_line(error)}")
            # If the server is unresponsive, queries that began before this probe would wait in vain.
            replica.end_what_hangs(started if isinstance(error, Unresponsive) else -inf)
            return
        replica.note(probe, self.primary.fresh_at(probe.position) if probe.in_recovery else -inf)
        replica.judge(self._reason_against(replica, probe))
        replica.end_what_hangs()

    def _reason_against(self, replica: Replica, probe: Probe) -> str:
        """Return why the replica is not eligible; empty if it is."""
        primary, known = self.primary, self.known
        apart = abs(probe.clock.ahead - primary.clock.ahead) - probe.clock.error - primary.clock.error
        if probe.identifier and primary.identifier and probe.identifier != primary.identifier:
            return STRANGER
        if not probe.in_recovery:
            return NOT_IN_RECOVERY
        if replica.is_forked:
            return FORKED
        if known.looked_at == -inf:
            return "the primary does not respond, so the lag is unknown"
        if replica.timeline not in (0, known.timeline):
            return f"it follows timeline {replica.timeline}, but the primary is on {known.timeline}"
        if replica.timeline == 0 and timeline.has_moved:
            return (
                "its timeline is unknown: grant the role EXECUTE on pg_control_recovery() and pg_control_checkpoint()"
            )
        if apart > CLOCKS_APART:
            return f"its clock differs from the primary's by {apart:.1f} seconds"
        lag = time.monotonic() - replica.fresh_at
        if lag > settings.REPLICA_MAX_LAG:
            behind = "since the first check" if lag == inf else f"by {lag:.0f} seconds"
            return f"it is behind {behind}, and REPLICA_MAX_LAG is {settings.REPLICA_MAX_LAG:g}"
        return ""


def look_at_primary(server: Server, watch: ReplicaWatch) -> None:
    """Ask the primary for its position and for recently used keys. Mark replicas that are ahead of it as diverged."""
    wanted = watch.known.wanted
    asked = wanted.pop(spaces.HOME)
    # Positions from before the statement: a replica that was already ahead of the primary's answer has diverged.
    known_before = {each: each.position for each in watch.replicas}
    look, (_, position, flushed, clock, identifier) = _looked(server, key_check().before, asked)
    is_other = look.timeline != watch.known.timeline
    watch.primary.note(look.started, _end_of_record(flushed), identifier, _clock(look.started, clock), is_other)
    watch.known.look(look, asked)
    for replica, reached in known_before.items():
        if reached > position and replica.probe is not None and replica.probe.in_recovery:
            replica.note_fork()
    for space, of_space in wanted.items():
        try:
            found, _ = _looked(server, key_check().before_in.format(schema=f'"{space}".'), of_space)
        except Exception as error:  # such as a space that was dropped; the primary answers for its keys
            log.info("cannot check the keys of space %s: %s", space, one_line(error))
            watch.known.drop(of_space)
        else:
            watch.known.look(found, of_space)


def _looked(server: Server, before: str, asked: list[str]) -> tuple[Look, tuple]:
    """Ask the primary for keys in the tables of `before`; return what it reports, and its row about the server."""
    check = key_check()
    if not server.is_connected:
        server.may_know = bool(server.ask(_MAY_KNOW)[0][0])
    sql = _LOOK.format(
        identifier=_IDENTIFIER if server.may_know else "NULL", hash=check.hash, version=check.version, before=before,
        after=check.after(is_to_come("postgresql", check.expires_at)),
    )  # fmt: skip
    started = time.monotonic()
    rows = server.ask(sql, ["{" + ",".join(asked) + "}"])
    try:
        timeline.meet(rows[0][0])
    except Exception:
        server.close()
        raise
    keys = {row[5]: KeyRow(row[6], row[7], Seen(row[8], row[9])) for row in rows if row[5] is not None}
    return Look(started, rows[0][0], _end_of_record(rows[0][1]), keys), rows[0][:5]


def probed(server: Server) -> Probe:
    """Ask a replica for its position."""
    if not server.is_connected:
        server.may_know = bool(server.ask(_MAY_KNOW)[0][0])
    sql = _PROBE.format(
        followed=_FOLLOWED if server.may_know else "NULL", identifier=_IDENTIFIER if server.may_know else "NULL"
    )
    started = time.monotonic()
    ((in_recovery, position, followed, identifier, since, clock),) = server.ask(sql)
    return Probe(started, in_recovery, position or 0, followed, identifier, since, _clock(started, clock))


def _clock(started: float, seconds: float) -> Clock:
    error = (time.monotonic() - started) / 2
    return Clock(seconds - started - error, error)


def _end_of_record(position: int) -> int:
    """Return where the last record of the log ends, given where the next one begins.

    If a page has only its header so far, that is the start of the page: 8216, 24 bytes into a page -> 8192.
    """
    return position - position % _PAGE if position % _PAGE in _HEADS else position
