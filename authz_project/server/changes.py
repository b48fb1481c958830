"""Threads for small changes: these wait for one another's commits, and hold up no question meanwhile."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error, connections

from authz_project.connections import let_go_if_broken, refresh_connection
from authz_project.server.line import Line
from policy.server_thread import thread

log = logging.getLogger("authz.server")


class Changes:
    """Two pools of threads: `waiting` threads with one request each, and `making` threads, which do the writing.

    A waiting thread keeps no connection. It hands what needs one to a making thread (`policy.server_thread`).
    Making threads wait for nothing but the database, so the waiting always ends.
    """

    def __init__(self, waiting: int, making: int):
        self.size = waiting
        self._here = 0  # requests that are being answered, and those in line
        self._line = Line(waiting)
        self._counting = threading.Lock()
        self._waiting = ThreadPoolExecutor(waiting, "change", initializer=self.hand_on)
        self._making = ThreadPoolExecutor(making, "commit")

    def do(self, work: Callable[..., None], *arguments: object) -> bool:
        """Return True at once, and have a thread do the work, which handles its own failures.

        Return False, and do nothing, where the line has been too long (see `Line`) or no thread can be started.
        """
        with self._counting:
            if not self._line.takes(self.waiting):
                return False
            self._here += 1
            self._line.note(self.waiting)
        if handed(self._waiting, self._done, work, *arguments):
            return True
        self._one_less()
        return False

    @property
    def is_crowded(self) -> bool:
        """Say whether `do` would refuse one more."""
        with self._counting:
            return not self._line.takes(self.waiting)

    @property
    def busy(self) -> int:
        return min(self._here, self.size)

    @property
    def waiting(self) -> int:
        return max(0, self._here - self.size)

    def _done(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            done(work, *arguments)
        finally:
            self._one_less()

    def _one_less(self) -> None:
        with self._counting:
            self._here -= 1
            self._line.note(self.waiting)

    def hand_on(self) -> None:
        """Have this thread hand what needs a connection to a making thread, and wait for the result, from now on."""
        thread.hand_on = lambda change: self._making.submit(_made, change).result()


def handed(pool: ThreadPoolExecutor, work: Callable[..., None], *arguments: object) -> bool:
    """Give the work to the pool, and say whether it is done.

    The pool queues work before it starts a thread for it. If no thread can be started, the work stays in the queue, and
    a thread of the pool may still take it. So a lock decides: either that thread does the work, or it is never done.
    """
    mine = threading.Lock()  # taken by the thread that does the work, or by this one to say that it is not done

    def once() -> None:
        if mine.acquire(blocking=False):
            work(*arguments)

    try:
        pool.submit(once)
    except RuntimeError as reason:
        log.error("a thread to answer cannot be had: %s", reason)
        return not mine.acquire(blocking=False)
    return True


def done(work: Callable[..., None], *arguments: object) -> None:
    try:
        work(*arguments)
    except BaseException:  # granian's own do not derive from Exception, and nobody else would log them
        log.exception("a request was not answered")
    with suppress(Error):  # a request whose key had to be looked up has opened one
        connections[DEFAULT_DB_ALIAS].close()


def _made(change: Callable[[], Any]) -> Any:
    let_go_if_broken()
    refresh_connection()
    try:
        return change()
    finally:
        let_go_if_broken()
