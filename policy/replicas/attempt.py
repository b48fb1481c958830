"""One attempt on a replica: what is read meanwhile, by whatever means, is read there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from psycopg.pq import ConnStatus, TransactionStatus

from policy import at_work
from policy.replicas.replica import NOT_IN_RECOVERY, SINCE, Replica

T = TypeVar("T")


def tried(replica: Replica, usual: Any, attempt: Callable[[], T]) -> T | None:
    """Return what the attempt finds on the replica in place of the usual database, if it comes to its end there."""
    try:
        mine = connections[replica.alias]
        if mine.connection is None and not _is_connected(mine, replica):
            return None
    except Exception as error:
        replica.doubt(f"it cannot be reached: {' '.join(str(error).split())[:200]}")
        return None
    number = replica.enter(mine.connection, settings.REPLICA_TIMEOUT)
    try:
        connections[DEFAULT_DB_ALIAS] = mine
        found = attempt()
    except Exception as error:
        connections[DEFAULT_DB_ALIAS] = usual
        replica.leave(number)
        _let_go_if_broken(replica, mine, error)
        return None
    except BaseException:
        connections[DEFAULT_DB_ALIAS] = usual
        replica.leave(number)
        raise
    connections[DEFAULT_DB_ALIAS] = usual
    replica.leave(number)
    if mine.connection is None or mine.connection.pgconn.parameter_status(b"in_hot_standby") == b"off":
        mine.close()
        replica.doubt(NOT_IN_RECOVERY)
        return None
    return found


def _is_connected(mine: Any, replica: Replica) -> bool:
    """Connect, and say whether that led to the server that is looked at: an address may lead to one of many."""
    mine.ensure_connection()
    at_work.replicas.add(mine.connection)
    since = mine.connection.execute(f"SELECT {SINCE}").fetchone()[0]
    if replica.probe is None or since != replica.probe.since:
        mine.close()
        replica.doubt("a connection led to another server, or it was started anew: each needs an address of its own")
        return False
    return True


def _let_go_if_broken(replica: Replica, mine: Any, error: Exception) -> None:
    link = mine.connection.pgconn if mine.connection is not None else None
    if (
        link is not None
        and link.status == ConnStatus.OK
        and link.transaction_status == TransactionStatus.IDLE
        and not mine.in_atomic_block
    ):
        mine.errors_occurred = False
        return
    with suppress(Exception):
        mine.close()
    replica.doubt(f"a connection to it broke: {' '.join(str(error).split())[:200]}")
