"""Waiting for the next change of an environment, and hooks that a server installs in its threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Condition
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, Error, connection, connections

from policy.core import spans
from policy.core.clock import timeline
from policy.core.threads import start_thread

# ---- server thread ------------------------------------------------------------------------------------------------
# Hooks of a server's threads: run a change on a thread with a database connection, and give up a concurrency slot.
#
# In a server, threads that wait for other transactions to commit have no database connection. They hand work that needs
# one to a thread that has one.
#
# A server has few slots, because most requests take less time than a thread switch. A thread that takes longer than
# most gives up its slot, so that another request can begin, and continues without one.

T = TypeVar("T")


class _ThreadLimits(threading.local):
    hand_on: Callable[[Callable[[], Any]], Any] | None = None  # set in threads without a connection
    give_up: Callable[[], None] | None = None  # set in threads that hold a slot


thread = _ThreadLimits()


def run_with_connection(change: Callable[[], T]) -> T:
    """Run the change on this thread, or on one with a connection; return what it returns, raise what it raises."""
    if thread.hand_on is None:
        return change()
    return thread.hand_on(spans.carried(change) if spans.is_on else change)


def give_up_slot() -> None:
    """Release this thread's slot, if it has one, so that another thread may begin."""
    if thread.give_up is not None:
        thread.give_up()


# ---- Waiting for an environment's next change, whichever process makes it -----------------------------------------
# A commit in this process wakes its waiting threads at once. Commits of other processes are found by polling: a few
# times a second, one statement for all waiting threads, and none while no thread waits.

LOOK_EVERY = 0.15  # seconds

log = logging.getLogger("authz.changes")


class OffsetWatch:
    """The newest known offsets of the environments that threads wait for."""

    def __init__(self) -> None:
        self._news = Condition()
        self._waiting: dict[int, int] = {}  # how many threads wait, by environment
        self._newest: dict[int, int] = {}  # the newest known offset, by environment
        self._is_looking = False
        self._must_look = False  # at once, without the usual delay
        self._is_over = False

    def wait(self, environment_id: int, offset: int, until: float) -> bool:
        """Wait until the environment has passed `offset`; return False on timeout at `until`, a time by `monotonic`."""
        with self._news:
            self._waiting[environment_id] = self._waiting.get(environment_id, 0) + 1
            try:
                self._look()  # there may have been a change since the offset was read
                self._news.wait_for(
                    lambda: self._is_over or self._newest.get(environment_id, 0) > offset,
                    max(0.0, until - time.monotonic()),
                )
                return not self._is_over and self._newest.get(environment_id, 0) > offset
            finally:
                self._leave(environment_id)

    def tell(self, environment_id: int, offset: int) -> None:
        """Wake the threads that wait for this committed change."""
        if environment_id in self._waiting:
            with self._news:
                self._learn({environment_id: offset})

    def end(self) -> None:
        """Make all calls of `wait` return False at once, now and later. For shutdown."""
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def forget(self) -> None:
        """Forget the offsets: another database server has taken over, and may be behind them."""
        with self._news:
            self._newest.clear()

    def _leave(self, environment_id: int) -> None:
        self._waiting[environment_id] -= 1
        if not self._waiting[environment_id]:
            del self._waiting[environment_id]
            self._newest.pop(environment_id, None)
            self._news.notify_all()  # the polling thread may end

    def _learn(self, newest: dict[int, int]) -> None:
        for environment_id in newest.keys() & self._waiting.keys():
            self._newest[environment_id] = max(self._newest.get(environment_id, 0), newest[environment_id])
        self._news.notify_all()

    # ---- looking -----------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._must_look = True
        self._news.notify_all()
        if not self._is_looking:
            start_thread("changes", self._keep_looking)
            self._is_looking = True  # not set if no thread could be started: the next waiter retries

    def _keep_looking(self) -> None:
        """Poll, over one connection, as long as any thread waits."""
        is_lost = False
        while waiting := self._pause():
            try:
                newest = offsets_of(waiting)
                is_lost = False
            except Exception as error:  # waiters are not notified; their clients see the error at the next request
                if not is_lost:
                    log.warning("cannot check for changes: %s", " ".join(str(error).split())[:200])
                is_lost = True
                _let_go()
            else:
                with self._news:
                    self._learn(newest)
        _let_go()
        _forget_connection()

    def _pause(self) -> list[int]:
        """Pause, and return the environments to poll next; an empty list ends polling, as no thread waits."""
        with self._news:
            self._news.wait_for(lambda: self._must_look or self._is_over or not self._waiting, LOOK_EVERY)
            self._must_look = False
            waiting = [] if self._is_over else list(self._waiting)
            self._is_looking = bool(waiting)
            return waiting


def _let_go() -> None:
    with suppress(Error):
        connection.close()


def _forget_connection() -> None:
    """Dismantle this thread's connection object as the thread ends.

    The object and its parts form reference cycles. Left alone, they would stay until a garbage collection: 14 kB for
    each polling thread.
    """
    vars(connections[DEFAULT_DB_ALIAS]).clear()
    del connections[DEFAULT_DB_ALIAS]


def offsets_of(environment_ids: list[int]) -> dict[int, int]:
    listed = ", ".join(str(int(each)) for each in environment_ids)
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT id, "offset" FROM authz_environment WHERE id IN ({listed})')
        return dict(cursor.fetchall())


watch = OffsetWatch()
timeline.forgets(watch.forget)
