"""Which history the database is on: a number that PostgreSQL raises whenever a standby takes over from a primary.

Where changes that were committed are lost by that, their numbers are given again: of revisions, of policy versions and
of signatures. So what is remembered by such numbers is forgotten before the first statement on another timeline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

from django.db import DEFAULT_DB_ALIAS, OperationalError

# The first eight digits of the name of a file of the log. A server in recovery names none.
NUMBER = (
    "CASE WHEN pg_is_in_recovery() THEN 0"
    " ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END"
)

log = logging.getLogger("authz.database")


class Timeline:
    """The latest one that this process has met; 0 as long as it has met none."""

    def __init__(self) -> None:
        self.number = 0
        self.has_moved = False  # whether there was another one before
        self._lock = Lock()
        self._forgetting: list[Callable[[], object]] = []

    def forgets(self, forget: Callable[[], object]) -> None:
        """Have this called when there is another timeline."""
        self._forgetting.append(forget)

    def meet(self, number: int) -> None:
        """Note the timeline of a server that takes changes; one that another has followed is refused."""
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
    """Ask a new connection to the primary for its timeline, before anybody else asks it for anything."""
    if connection.vendor != "postgresql" or connection.alias != DEFAULT_DB_ALIAS:
        return
    number = 0
    with suppress(connection.Database.Error):  # a role that may not know, or a server that has none
        number = connection.connection.execute(f"SELECT {NUMBER}").fetchone()[0]
    try:
        timeline.meet(number)
    except OperationalError:
        connection.close()
        raise
    connection.timeline = number


def is_outdated(connection: Any) -> bool:
    """Say whether a connection leads to a server that another one has taken over from."""
    return 0 < getattr(connection, "timeline", 0) < timeline.number
