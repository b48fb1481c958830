"""The timeline of the database: a number that PostgreSQL raises whenever a standby takes over from a primary.

A failover may lose committed changes, and then the numbers of their revisions, policy versions and signatures are used
again for others. So caches by such numbers are cleared before the first statement on a new timeline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from threading import Lock
from typing import Any

from django.db import DEFAULT_DB_ALIAS, OperationalError

# The first eight hexadecimal digits of a WAL file's name are the timeline. A server in recovery names no file.
NUMBER = (
    "CASE WHEN pg_is_in_recovery() THEN 0"
    " ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END"
)

log = logging.getLogger("authz.database")


class Timeline:
    """The latest timeline that this process has met; 0 as long as it has met none."""

    def __init__(self) -> None:
        self.number = 0
        self.has_moved = False  # whether this process has met an earlier timeline
        self._lock = Lock()
        self._forgetting: list[Callable[[], object]] = []

    def forgets(self, forget: Callable[[], object]) -> None:
        """Register a function to be called when a new timeline is met: it clears a cache."""
        self._forgetting.append(forget)

    def meet(self, number: int) -> None:
        """Note the timeline of a server that takes changes; raise `OperationalError` if a later one has been met."""
        if number in (0, self.number):
            return
        with self._lock:
            if number < self.number:
                raise OperationalError(
                    f"the database is on timeline {number}, and another server has taken over with {self.number}"
                )
            if 0 < self.number < number:
                log.warning("another server has taken over: timeline %d follows %d", number, self.number)
                for forget in self._forgetting:
                    forget()
                self.has_moved = True
            self.number = number


timeline = Timeline()


def meet_connection(sender: object, connection: Any, **_: object) -> None:
    """Read the timeline of a new connection to the primary, before any other statement runs on it.

    If another server of the URL takes changes on a later timeline, the connection is replaced by one to that server.
    """
    if connection.vendor != "postgresql" or connection.alias != DEFAULT_DB_ALIAS:
        return
    server = import_module("policy.replicas.server")  # here: it needs PostgreSQL's driver
    first = connection.connection
    try:
        with connection.wrap_database_errors:
            connection.connection, number = server.newest(connection, first)
        if connection.connection is not first:
            connection.set_autocommit(connection.settings_dict["AUTOCOMMIT"])
            connection.init_connection_state()
        timeline.meet(number)
    except OperationalError:
        connection.close()
        raise
    connection.timeline = number


def is_outdated(connection: Any) -> bool:
    """Say whether a connection is to a server from which another one has taken over."""
    return 0 < getattr(connection, "timeline", 0) < timeline.number
