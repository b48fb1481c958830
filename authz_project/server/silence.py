"""Detects a database that neither answers nor hangs up: it was stopped, or its machine is gone without a word.

A thread that waits for such a database would wait for ever, since the database itself enforces the timeouts of
statements. So when a statement takes long, another thread sends `SELECT 1` to the same server, on a connection of its
own. If that is not answered either, all connections that wait for this server are shut down: to the threads that use
them, the database is lost, as if it had been shut down. Until the server answers again, no thread begins to wait.

SQLite runs in this process. A server on SQLite does without this file, and so without PostgreSQL's driver.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
import weakref
from contextlib import closing, suppress
from typing import Any

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.errors import ConnectionTimeout

from authz_project import connections
from policy import database_waits

log = logging.getLogger("authz.server")

LOOK_EVERY = 0.5  # seconds
LONG = 3.0  # seconds without an answer, after which the database is asked whether it still answers at all
ANSWER_WITHIN = 3  # seconds to connect, and as many to answer
AGAIN = 5.0  # seconds until the next such question, as long as it answers


def start_hanging_up() -> None:
    """Start the thread that looks for silent databases, for as long as the process lives."""
    connection_created.connect(_watch_waiting, dispatch_uid="silence")
    threading.Thread(target=Silence().watch, name="silence", daemon=True).start()


def _watch_waiting(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Have `database_waits` note whenever this new connection waits, whatever for."""
    if connection.vendor == "postgresql":
        connection.connection.wait = _Noted(connection.connection)


class _Noted:
    """Replaces a connection's method `wait`, by which psycopg waits. Code that goes past it notes its waits itself."""

    def __init__(self, raw: Any):
        self._raw = weakref.ref(raw)
        self._wait = type(raw).wait

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        raw = self._raw()
        database_waits.begin(raw)
        try:
            return self._wait(raw, *arguments, **options)
        finally:
            database_waits.end(raw)


class Silence:
    """Looks for connections that have waited for long, and asks their server whether it still answers."""

    def __init__(self) -> None:
        self._ask_at = 0.0
        self._silent: dict[str, Server] = {}  # those that did not answer when last asked, by their names

    def watch(self) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            try:
                self.look()
            except Exception:
                log.exception("a look at those who wait for the database failed")

    def look(self) -> None:
        """Look once: ask silent servers again, and the servers of connections that have waited for long."""
        for name, server in tuple(self._silent.items()):
            if answers(server):
                del self._silent[name]
                log.warning("the database answers again")
        connections.note_silence(bool(self._silent))
        waiting = [
            (raw, since) for raw, since in database_waits.waiting.copy().items() if raw not in database_waits.replicas
        ]
        late = [raw for raw, since in waiting if time.monotonic() - since > LONG]
        if late and time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + AGAIN
            self._ask({name: raw for raw in late if (name := name_of(raw))})

    def _ask(self, late: dict[str, Any]) -> None:
        for name, raw in late.items():
            try:
                self._ask_one(name, server_of(raw))
            except Exception:  # the next may be another server
                log.exception("whoever waits for a database was not looked after")

    def _ask_one(self, name: str, server: Server) -> None:
        if not answers(server):
            log.error("the database does not answer: whoever waits for it is told that it cannot be reached")
            self._silent[name] = server
            connections.note_silence(True)
            hang_up_on(name)


Server = dict[str, Any]  # the parameters to connect to one


def name_of(raw: Any) -> str:
    """Return a name of the server that the connection leads to, equal for all that lead there; empty if it is lost."""
    try:
        return f"{raw.info.host} {raw.info.hostaddr} {raw.info.port} {raw.info.dbname}"
    except raw.OperationalError:
        return ""


def server_of(raw: Any) -> Server:
    """Return the parameters to connect to the very server of this connection: a URL may name several."""
    known = {"host": raw.info.host, "port": raw.info.port, "password": raw.info.password}
    return {**raw.info.get_parameters(), **known, "options": "", "connect_timeout": ANSWER_WITHIN}


def answers(server: Server) -> bool:
    """Say whether the server answers in time, with anything.

    A refusal is an answer, too: the waiting threads will get the same. Where asking fails in an unexpected way, that
    counts as an answer as well, because it does not show that the database is away.
    """
    try:
        with closing(psycopg.connect(**server, autocommit=True)) as raw:
            raw.pgconn.send_query(b"SELECT 1")
            waiting = select.poll()  # `select` takes no file descriptors from 1,024 on
            waiting.register(raw.pgconn.socket, select.POLLIN)
            return bool(waiting.poll(ANSWER_WITHIN * 1000))
    except ConnectionTimeout:
        return False
    except psycopg.Error:
        return True
    except Exception:
        log.exception("whether the database answers was not found out")
        return True


def hang_up_on(name: str) -> None:
    """Hang up the connections to the database of this name that wait for an answer."""
    for raw, since in database_waits.waiting.copy().items():
        if name_of(raw) == name:
            _hang_up(raw, since)


def _hang_up(raw: Any, since: float) -> None:
    """Shut the socket down, so that the driver finds the connection closed. Do nothing if this wait has ended.

    That is checked after `dup`: while the wait goes on, the file descriptor still belongs to this connection.
    """
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(raw.pgconn.socket)) as mine:
        if database_waits.waiting.get(raw) == since:
            mine.shutdown(socket.SHUT_RDWR)
