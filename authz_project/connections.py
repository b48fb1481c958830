"""Connections outlive requests, and sometimes the database does not outlive connections.

Asking each time whether one still works would cost every request a round trip. So it is asked only when the
connection has been idle for long, or when any thread of the process has lost one since it was last used:
a restart of the database is one failed request for a process, not one for each of its connections.
"""

import time
from types import TracebackType
from weakref import WeakKeyDictionary

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

IDLE = 30.0  # seconds

_lost_at = 0.0
_seen: WeakKeyDictionary[BaseDatabaseWrapper, float] = WeakKeyDictionary()  # when each was last used


def note_loss() -> None:
    """A connection broke: others may have, too."""
    global _lost_at
    _lost_at = time.monotonic()


def refresh_connection() -> None:
    """Before a request uses this thread's connection: drop it if it is dead."""
    now, mine = time.monotonic(), connections[DEFAULT_DB_ALIAS]
    seen = _seen.get(mine, 0.0)
    _seen[mine] = now
    doubtful = seen <= _lost_at or now - seen > IDLE
    if doubtful and connection.connection is not None and not connection.in_atomic_block and not connection.is_usable():
        connection.close()


def let_go_if_broken() -> None:
    """Before and after a request, as Django has it around those that it answers: drop what errors left unusable."""
    for each in connections.all(initialized_only=True):  # who has waited for others may have left its own to them
        each.close_if_unusable_or_obsolete()


class KeptConnection:
    """A connection that threads have by turns, each while it is in here."""

    def __init__(self) -> None:
        self._kept = connections.create_connection(DEFAULT_DB_ALIAS)
        self._kept.inc_thread_sharing()

    def __enter__(self) -> None:
        connections[DEFAULT_DB_ALIAS] = self._kept

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del connections[DEFAULT_DB_ALIAS]
