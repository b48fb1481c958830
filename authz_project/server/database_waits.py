"""Waiting for PostgreSQL with a deadline: a server that is stopped, or whose machine is gone, ends no statement itself.

Each wait of a connection has two limits. A statement may take a second longer than `STATEMENT_TIMEOUT`, by which the
server ends it. And when a wait lasts for `LONG`, whatever for, the waiting thread asks the same server on another
connection whether it answers at all. Past either limit, the thread shuts its connection down: to the code above, the
connection is lost, as if the server had closed it, so whether a commit was made remains unknown.

While a server is silent, no request begins to wait for it. A thread connects again and again in the usual way, which
may lead to another server, and ends the silence.

SQLite runs in this process. A server on SQLite does without this file, and so without PostgreSQL's driver.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import closing, suppress
from math import inf
from typing import Any

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS
from django.db import connections as databases
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.errors import ConnectionTimeout
from psycopg.waiting import wait

from authz_project import database
from policy.ground.threads import start_thread
from policy.replicas.replica import Silent, answered

log = logging.getLogger("authz.server")

GRACE = 1.0  # seconds beyond the limit of a statement, for the server to end it
LONG = 2.0  # seconds without an answer, after which the server is asked whether it answers at all
ANSWER_WITHIN = 2  # seconds to connect, and as many to answer
AGAIN = 5.0  # seconds until the next such question, as long as the server answers
LOOK_EVERY = 0.1  # seconds between looks at the limits
CONNECT_EVERY = 0.25  # seconds between attempts to connect, while the server is silent


def start() -> None:
    """Give each new connection to the primary its limits, for as long as the process lives."""
    connection_created.connect(_limit_waits, dispatch_uid="database waits")


def _limit_waits(connection: BaseDatabaseWrapper, **_: object) -> None:
    if connection.vendor == "postgresql" and connection.alias == DEFAULT_DB_ALIAS:
        connection.connection.wait = Wait(connection)


class Wait:
    """Replaces a connection's method `wait`, by which psycopg waits, and our own code below its cursors."""

    def __init__(self, connection: BaseDatabaseWrapper):
        self._connection = weakref.ref(connection)
        self._raw = weakref.ref(connection.connection)

    def __call__(self, steps: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:
        """Run a generator of the driver, which yields what it waits for, and return its result."""
        raw: Any = self._raw()
        if arguments or options:  # the driver has a limit of its own in mind
            return type(raw).wait(raw, steps, *arguments, **options)
        return wait(self._limited(steps, raw), raw.pgconn.socket, interval=LOOK_EVERY)

    def _limited(self, steps: Generator[Any, Any, Any], raw: Any) -> Generator[Any, Any, Any]:
        """Run the generator within the limits. While nothing comes, 0 is sent every `LOOK_EVERY`."""
        began = time.monotonic()
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and self._is_over(raw, time.monotonic() - began):
                    _shut_down(raw)  # so that the next step finds the connection closed
                wanted = steps.send(ready)
        except StopIteration as done:
            return done.value

    def _is_over(self, raw: Any, waited: float) -> bool:
        return waited >= self._limit() or (waited >= LONG and silence.is_noticed(raw, time.monotonic() - waited))

    def _limit(self) -> float:
        """Return the limit of a statement. Transactions set the server's limit as they need it; changes may wait."""
        connection = self._connection()
        if connection is None or connection.in_atomic_block or not settings.STATEMENT_TIMEOUT:
            return inf
        return settings.STATEMENT_TIMEOUT + GRACE


class Silence:
    """Whether the server is silent, for all threads of the process."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._ask_at = 0.0
        self._noticed_at = -inf

    def is_noticed(self, raw: Any, began: float) -> bool:
        """Say whether the server of this connection has been silent since then. One thread at a time asks it."""
        if self._noticed_at >= began:
            return True
        if time.monotonic() < self._ask_at or not self._asking.acquire(blocking=False):
            return False
        try:
            if answers(raw):
                self._ask_at = time.monotonic() + AGAIN
                return False
            self._begin()
            return True
        finally:
            self._asking.release()

    def _begin(self) -> None:
        log.error("the database does not respond; waiting requests get status 503")
        self._noticed_at = time.monotonic()
        database.note_silence(True)
        try:
            start_thread("silence", self._end)
        except RuntimeError:  # no thread can be had: each request finds out for itself
            database.note_silence(False)

    def _end(self) -> None:
        """Connect again and again, until a server answers."""
        while not _can_connect():
            time.sleep(CONNECT_EVERY)
        database.note_silence(False)
        log.warning("the database responds again")


silence = Silence()


def answers(raw: Any) -> bool:
    """Say whether the very server of this connection answers in time, with anything.

    A refusal is an answer, too: the waiting threads will get the same. Where asking fails in an unexpected way, that
    counts as an answer as well, because it does not show that the database is away.
    """
    try:
        known = {"host": raw.info.host, "port": raw.info.port, "password": raw.info.password}
        server = {**raw.info.get_parameters(), **known, "options": "", "connect_timeout": ANSWER_WITHIN}
        with closing(psycopg.connect(**server, autocommit=True)) as other:
            answered(other, "SELECT 1", [], time.monotonic() + ANSWER_WITHIN)
            return True
    except (ConnectionTimeout, Silent):
        return False
    except psycopg.Error:
        return True
    except Exception:
        log.exception("cannot check whether the database responds")
        return True


def _can_connect() -> bool:
    """Say whether a connection to the primary can be made, whichever server that is now."""
    connection = databases.create_connection(DEFAULT_DB_ALIAS)
    try:
        connection.connect()
        return True
    except Exception as reason:
        return not isinstance(reason.__cause__ or reason, ConnectionTimeout)
    finally:
        with suppress(Exception):
            connection.close()


def _shut_down(raw: Any) -> None:
    """Shut the socket down, so that the driver finds the connection closed."""
    its_socket = socket.socket(fileno=raw.pgconn.socket)
    try:
        with suppress(OSError):  # it has been closed already
            its_socket.shutdown(socket.SHUT_RDWR)
    finally:
        its_socket.detach()
