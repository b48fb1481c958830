"""Threads for small changes, which wait for one another's commits and hold up no question meanwhile."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error, connections

from authz_project.connections import let_go_if_broken, refresh_connection
from policy import noticing
from policy.handing import thread

log = logging.getLogger("authz.server")


class Changes:
    """`waiting` threads have a change each. They keep no connection: what takes one is made by `making` others.

    Those wait for nobody but the database, so that the others' waiting ends.
    """

    def __init__(self, waiting: int, making: int):
        self._waiting = ThreadPoolExecutor(waiting, "change", initializer=self.hand_on)
        self._making = ThreadPoolExecutor(making, "commit")

    def do(self, work: Callable[..., None], *arguments: object) -> None:
        """As soon as there is a thread for it; this one goes on. Work deals with its failures."""
        self._waiting.submit(done, noticing.waited(work) if noticing.is_on else work, *arguments)

    def hand_on(self) -> None:
        """From now on this thread has what takes a connection made by others."""
        thread.hand_on = lambda change: self._making.submit(_made, change).result()


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
