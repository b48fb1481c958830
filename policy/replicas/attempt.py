"""Make one attempt to read from a replica, by substituting it for the default connection."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections
from psycopg.pq import ConnStatus, TransactionStatus

from policy.core.config import settings
from policy.replicas.replica import NOT_IN_RECOVERY, SINCE, Replica

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
    except Exception as error:
        replica.doubt(f"unreachable: {' '.join(str(error).split())[:200]}")
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
    mine.proven_at = time.monotonic()


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
        replica.doubt(f"connection lost: {' '.join(str(error).split())[:200]}")
