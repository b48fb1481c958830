"""Ask a replica; or the primary, if its answer does not count."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from psycopg.pq import ConnStatus, TransactionStatus

from policy.active import Caller, Seen
from policy.ground.cache import configured
from policy.replicas.replica import NOT_IN_RECOVERY, SINCE, Replica
from policy.values import whole_number

# ---- Makes one attempt on a replica: all that it reads by the default connection is read there --------------------

T = TypeVar("T")


def tried(replica: Replica, usual: Any, attempt: Callable[[], T]) -> T | None:
    """Return what the attempt finds on the replica, in place of the usual database; None if it fails there."""
    try:
        mine: Any = connections[replica.alias]
        if mine.connection is not None and mine.proven_at <= replica.lost_at:  # it may have been lost with another one
            _close(mine)
        if mine.connection is None:
            _connect(mine)
        if not _is_looked_at(mine, replica):
            return None
    except Exception as error:
        replica.doubt(f"it cannot be reached: {' '.join(str(error).split())[:200]}")
        return None
    try:
        found = _found(replica, mine, usual, attempt)
    except Exception as error:
        _let_go_if_broken(replica, mine, error)
        return None
    except BaseException:  # the connection may be in the middle of anything
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
    """Connect, and note in `led_to` which server the connection leads to."""
    mine.ensure_connection()
    try:
        mine.led_to = mine.connection, mine.connection.execute(f"SELECT {SINCE}").fetchone()[0]
    except BaseException:
        _close(mine)
        raise
    mine.proven_at = time.monotonic()


def _is_looked_at(mine: Any, replica: Replica) -> bool:
    """Say whether the connection leads to the server that was probed; if not, close it.

    One address may lead to several servers.
    """
    raw, since = getattr(mine, "led_to", (None, None))
    if replica.probe is not None and raw is mine.connection and since == replica.probe.since:
        return True
    _close(mine)
    replica.doubt("a connection led to another server, or it was started anew: each needs an address of its own")
    return False


def _is_still_in_order(replica: Replica, mine: Any) -> bool:
    """Say whether the answer came from a standby, the one that was probed. Close a connection that is not idle now."""
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
    if mine.proven_at > replica.lost_at:  # of connections that are lost together, only the first casts doubt
        replica.lose()
        replica.doubt(f"a connection to it broke: {' '.join(str(error).split())[:200]}")


# ---- reading ------------------------------------------------------------------------------------------------------
# Asks a replica; or the primary, if no replica may be asked, or if the replica's answer does not count.
#
# An attempt is a function that reads all that one answer needs. On a replica it may fail for any reason, or read a
# snapshot that is older than what this process knows of the primary, or than what the caller has seen. Then the same
# attempt is made on the primary, and the caller gets its answer, or its error.


NOWHERE = 2**63 - 1  # a position that no environment has
POSITIONED = "positioned"  # of REPLICA_READS: only requests that say how far they have seen


class AttemptResult(NamedTuple, Generic[T]):
    """The result of an attempt, and its snapshot, which must not be older than the revision `least`."""

    result: T
    seen: Seen
    least: int = 0


class Primary:
    """What this process does before it asks the primary, and its one `ReplicaWatch`."""

    prepare: Callable[[], object] = staticmethod(lambda: None)  # called before it is asked, by the app above
    watch: Any = None


primary = Primary()
_beginning = Lock()


def watch() -> Any:
    """Return the one `ReplicaWatch` of this process. It is imported late: it needs PostgreSQL's driver."""
    if primary.watch is None:
        with _beginning:
            if primary.watch is None:
                primary.watch = import_module("policy.replicas.watch").ReplicaWatch()
    return primary.watch


def read(who: Caller, position: int | None, attempt: Callable[[], AttemptResult[T]]) -> T:
    """Return the attempt's result, from a replica or the primary.

    `position` is how far the caller has seen, and None if it does not say.
    """
    if not configured.REPLICAS:
        return attempt().result
    asked: list[Any] = []
    found = _on_replica(who, position, attempt, asked)
    if found is None:
        found = _on_primary(who, position, attempt, asked)
    return found.result


def note_change(environment_id: int, offset: int) -> None:
    """Note a change that this process has committed."""
    if configured.REPLICAS:
        watch().known.learn(environment_id, Seen(offset))


def position_of(text: str) -> int | None:
    """Return the position in a header, and None if the header is empty.

    One that cannot be read is `NOWHERE`, which no replica has reached: the primary answers.
    """
    if not text:
        return None
    position = whole_number(text, NOWHERE)
    return NOWHERE if position is None else position


def _on_primary(
    who: Caller, position: int | None, attempt: Callable[[], AttemptResult[T]], asked: list[Any]
) -> AttemptResult[T]:
    """Return what the attempt finds on the primary; if that is away and a replica was asked before, on another one."""
    try:
        primary.prepare()
        found = attempt()
    except (OperationalError, InterfaceError):
        other = _on_replica(who, position, attempt, asked) if asked else None
        if other is not None:
            return other
        if _is_connected():
            raise
        found = attempt()  # by a new connection: another server may have taken over
    watch().known.learn(who.environment_id, found.seen)
    return found


def _is_connected() -> bool:
    """Say whether a new connection to the primary would change nothing.

    A connection that is broken, and in no transaction, is closed: then it would.
    """
    mine = connections[DEFAULT_DB_ALIAS]
    if mine.connection is None or mine.in_atomic_block or mine.is_usable():
        return True
    mine.close()
    return False


def _on_replica(
    who: Caller, position: int | None, attempt: Callable[[], AttemptResult[T]], asked: list[Any]
) -> AttemptResult[T] | None:
    """Return what the attempt finds on a replica not asked before; None if there is none, or it does not count."""
    if who.confirmed:  # on the primary: what was read there must not be mixed with what a replica says
        return None
    if position == NOWHERE or (position is None and settings.REPLICA_READS == POSITIONED):
        return None
    usual = connections[DEFAULT_DB_ALIAS]
    if usual.in_atomic_block:  # only this connection sees what the transaction has changed
        return None
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
        return None  # something became known meanwhile, by which the answer does not count
    replica.count()
    if least:
        watching.known.learn(who.environment_id, Seen(least))
    return found
