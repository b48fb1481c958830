"""Threads for small changes, which wait for one another's commits and hold up no question meanwhile."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error, connections

from authz_project.connections import let_go_if_broken, refresh_connection
from authz_project.server.line import Line
from policy.handing import thread

log = logging.getLogger("authz.server")


class Changes:
    """`waiting` threads have a change each. They keep no connection: what takes one is made by `making` others.

    Those wait for nobody but the database, so that the others' waiting ends.
    """

    def __init__(self, waiting: int, making: int):
        self.size = waiting
        self._here = 0  # at work, and before it
        self._line = Line(waiting)
        self._counting = threading.Lock()
        self._waiting = ThreadPoolExecutor(waiting, "change", initializer=self.hand_on)
        self._making = ThreadPoolExecutor(making, "commit")

    def do(self, work: Callable[..., None], *arguments: object) -> bool:
        """As soon as there is a thread for it; this one goes on. Work deals with its failures.

        It is not done, and False, where too many wait for too long (see `Line`), or no thread can be had.
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
        """Whether one more would not be done."""
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
        """From now on this thread has what takes a connection made by others."""
        thread.hand_on = lambda change: self._making.submit(_made, change).result()


def handed(pool: ThreadPoolExecutor, work: Callable[..., None], *arguments: object) -> bool:
    """Whether the pool does the work. What it cannot have a thread for it keeps in line: that is not done later."""
    mine = threading.Lock()  # whoever takes it does the work, or says that nobody does

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
    except BaseException:  # granian's own are no Exceptions, and nobody is there to see them
        log.exception("a request was not answered")
    with suppress(Error):  # who had to look a key up has one
        connections[DEFAULT_DB_ALIAS].close()


def _made(change: Callable[[], Any]) -> Any:
    let_go_if_broken()
    refresh_connection()
    try:
        return change()
    finally:
        let_go_if_broken()
