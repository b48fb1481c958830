"""Connections outlive requests, and sometimes the database does not outlive connections.

Asking each time whether one still works would cost every request a round trip. So a thread asks only when
its connection has been idle for long, or when any thread of the process has lost one since it last asked:
a restart of the database is one failed request for a process, not one for each of its threads.
"""

import threading
import time
from functools import cache, wraps

from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from policy import noticing
from policy.timeline import is_outdated

IDLE = 30.0  # seconds

_lost_at = 0.0
_is_silent = False  # the database is there, and does not answer
_thread = threading.local()


def note_loss() -> None:
    """A connection broke: others may have, too."""
    global _lost_at
    _lost_at = time.monotonic()


def note_silence(is_silent: bool) -> None:
    """Nobody is to wait for a database that does not answer; when it does again, all connections are doubtful."""
    global _is_silent
    if is_silent != _is_silent:
        note_loss()
    _is_silent = is_silent


def refresh_connection(mine: BaseDatabaseWrapper | None = None) -> None:
    """Before a request uses this thread's connection, which may be at hand: drop it if it is dead."""
    if _is_silent:
        raise OperationalError("the database does not answer")
    now = time.monotonic()
    seen = getattr(_thread, "seen", 0.0)
    _thread.seen = now
    mine = mine or connections[DEFAULT_DB_ALIAS]
    if mine.connection is None or mine.in_atomic_block:
        return
    doubtful = seen <= _lost_at or now - seen > IDLE
    if is_outdated(mine) or (doubtful and not mine.is_usable()):
        mine.close()
        _note_lost()


def let_go_if_broken() -> BaseDatabaseWrapper:
    """Before and after a request, as Django has it around those that it answers: drop what errors left unusable.

    Return the thread's connection: to look it up takes longer than most of what is done for a request.
    """
    mine = connections[DEFAULT_DB_ALIAS]
    had_one = mine.connection is not None
    mine.close_if_unusable_or_obsolete()
    if had_one and mine.connection is None:  # none gets old here
        _note_lost()
    return mine


@cache
def note_connecting() -> None:
    """From now on, while somebody observes, how long it takes until there is a connection is a part of a request.

    Django tells of connections that are made, and not when it begins to make one.
    """
    connect = BaseDatabaseWrapper.connect

    @wraps(connect)
    def noted(self: BaseDatabaseWrapper) -> None:
        with noticing.noted("wait", of="connection"):
            connect(self)

    BaseDatabaseWrapper.connect = noted  # type: ignore[method-assign]


def _note_lost() -> None:
    if noticing.is_on:
        noticing.note("lost")
