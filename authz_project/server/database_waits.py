"""Timeouts for PostgreSQL connections, for a server that hangs or whose machine is gone and so cannot time out itself.

Each wait of a connection has two limits. A statement may take one second longer than `STATEMENT_TIMEOUT`, at which the
server itself cancels it. And after `LONG` seconds of any wait, the waiting thread probes the same server on a second
connection. If a limit is exceeded, or the probe gets no response, the thread shuts its connection down. The code above
sees a lost connection, as if the server had closed it, so whether a commit succeeded is unknown.

While a server does not respond, new requests fail at once instead of waiting for it. A thread keeps reconnecting in the
usual way, which may lead to another server (failover), and clears this state on success.

With SQLite, this module and PostgreSQL's driver are not imported.
"""

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
from policy.core.threads import start_thread
from policy.replicas.replica import Unresponsive, answered

log = logging.getLogger("authz.server")

GRACE = 1.0  # seconds beyond a statement's timeout, for the server to cancel it
LONG = 2.0  # seconds without a response, after which the server is probed
ANSWER_WITHIN = 2  # seconds to connect, and as many to respond
AGAIN = 5.0  # seconds until the next probe, if the server responds
LOOK_EVERY = 0.1  # seconds between checks of the limits
CONNECT_EVERY = 0.25  # seconds between attempts to connect while the server does not respond


def start() -> None:
    """Install the limits on every new connection to the primary, for the lifetime of the process."""
    connection_created.connect(_limit_waits, dispatch_uid="database waits")


def _limit_waits(connection: BaseDatabaseWrapper, **_: object) -> None:
    if connection.vendor == "postgresql" and connection.alias == DEFAULT_DB_ALIAS:
        connection.connection.wait = Wait(connection)


class Wait:
    """Replacement for a connection's `wait` method, which psycopg and our own code below its cursors call."""

    def __init__(self, connection: BaseDatabaseWrapper):
        self._connection = weakref.ref(connection)
        self._raw = weakref.ref(connection.connection)

    def __call__(self, steps: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:
        """Run a generator of the driver, which yields what it waits for, and return its result."""
        raw: Any = self._raw()
        if arguments or options:  # the driver sets its own limit
            return type(raw).wait(raw, steps, *arguments, **options)
        return wait(self._limited(steps, raw), raw.pgconn.socket, interval=LOOK_EVERY)

    def _limited(self, steps: Generator[Any, Any, Any], raw: Any) -> Generator[Any, Any, Any]:
        """Run the generator within the limits. While nothing arrives, it is sent 0 every `LOOK_EVERY` seconds."""
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
        return waited >= self._limit(raw) or (waited >= LONG and health.is_unresponsive(raw, time.monotonic() - waited))

    def _limit(self, raw: Any) -> float:
        """Return the timeout of a statement; none in transactions: these set the server's own, and changes may wait.

        Statements that are sent together (`policy.core.journal.in_one_trip`) are a transaction.
        """
        connection = self._connection()
        is_transaction = connection is None or connection.in_atomic_block or raw.pgconn.pipeline_status
        if is_transaction or not settings.STATEMENT_TIMEOUT:
            return inf
        return settings.STATEMENT_TIMEOUT + GRACE


class DatabaseHealth:
    """Whether the server is unresponsive, for all threads of the process."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._ask_at = 0.0
        self._noticed_at = -inf

    def is_unresponsive(self, raw: Any, began: float) -> bool:
        """Return whether the server has been unresponsive since `began`. One thread at a time probes it."""
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
        database.set_unresponsive(True)
        try:
            start_thread("database health", self._end)
        except RuntimeError:  # no thread can be started: each request finds out for itself
            database.set_unresponsive(False)

    def _end(self) -> None:
        """Try to connect until a server responds."""
        while not _can_connect():
            time.sleep(CONNECT_EVERY)
        database.set_unresponsive(False)
        log.warning("the database responds again")


health = DatabaseHealth()


def answers(raw: Any) -> bool:
    """Return whether the server of this very connection responds in time, with anything.

    An error from the server counts as a response: the waiting threads will get the same one. So does an unexpected
    failure of the probe, because it does not show that the database is down.
    """
    try:
        known = {"host": raw.info.host, "port": raw.info.port, "password": raw.info.password}
        server = {**raw.info.get_parameters(), **known, "options": "", "connect_timeout": ANSWER_WITHIN}
        with closing(psycopg.connect(**server, autocommit=True)) as other:
            answered(other, "SELECT 1", [], time.monotonic() + ANSWER_WITHIN)
            return True
    except (ConnectionTimeout, Unresponsive):
        return False
    except psycopg.Error:
        return True
    except Exception:
        log.exception("cannot check whether the database responds")
        return True


def _can_connect() -> bool:
    """Return whether a connection to the primary can be made, whichever server that is now."""
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
    """Shut down the socket, so that the driver finds the connection closed."""
    its_socket = socket.socket(fileno=raw.pgconn.socket)
    try:
        with suppress(OSError):  # it has been closed already
            its_socket.shutdown(socket.SHUT_RDWR)
    finally:
        its_socket.detach()
