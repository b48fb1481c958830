"""Drops connections that no longer work: they outlive requests, and the database may restart meanwhile.

To test a connection before each request would cost a round trip. So a thread tests its connection only if the
connection has been idle for long, or if any thread of the process has lost one since this thread last used its own.
A restart of the database is then one failed request for a process, not one for each of its threads.
"""

import math
import threading
import time
from functools import cache, wraps

from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from policy import noticing
from policy.timeline import is_outdated

IDLE = 30.0  # seconds

_lost_at = 0.0
_silent_at = -math.inf
_is_silent = False  # the database neither answers nor hangs up
_thread = threading.local()


def note_loss() -> None:
    """Note that a connection broke, so that each thread tests its own before it uses it again."""
    global _lost_at
    _lost_at = time.monotonic()


def note_silence(is_silent: bool) -> None:
    """Note whether the database is silent: while it is, no request begins to wait for it.

    Afterwards each thread makes a new connection: to test the old one might mean to wait for the silent server again.
    """
    global _is_silent, _silent_at
    if is_silent:
        _silent_at = time.monotonic()
    _is_silent = is_silent


def refresh_connection(mine: BaseDatabaseWrapper | None = None) -> None:
    """Drop this thread's connection if it is dead; called before a request uses it. It is `mine`, if it is at hand.

    Raise `OperationalError` while the database is silent.
    """
    if _is_silent:
        raise OperationalError("the database does not answer")
    now = time.monotonic()
    seen = getattr(_thread, "seen", 0.0)
    _thread.seen = now
    mine = mine or connections[DEFAULT_DB_ALIAS]
    if mine.connection is None or mine.in_atomic_block:
        return
    doubtful = seen <= _lost_at or now - seen > IDLE
    if is_outdated(mine) or seen <= _silent_at or (doubtful and not mine.is_usable()):
        mine.close()
        _note_lost()


def let_go_if_broken() -> BaseDatabaseWrapper:
    """Drop this thread's connection if an error left it unusable; called before and after a request, as Django does.

    Return the connection: to look it up takes longer than most of what is done for a request.
    """
    mine = connections[DEFAULT_DB_ALIAS]
    had_one = mine.connection is not None
    mine.close_if_unusable_or_obsolete()
    # The driver knows of a loss, and Django does not, where an error was of no importance to the request.
    if mine.connection is not None and mine.vendor == "postgresql" and mine.connection.closed:
        mine.close()
    if had_one and mine.connection is None:  # it was broken: none is dropped for its age
        _note_lost()
    return mine


@cache
def note_connecting() -> None:
    """Have the time that connecting takes noted as a part of the request, while somebody observes.

    Django's method is replaced for this: its signal tells of connections that were made, and not when that began.
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
