"""A database that neither answers nor hangs up: it was stopped, or its machine is gone without a word.

Whoever waits for one would wait for ever, for the time limits of statements are kept by the database itself. So where
a statement takes long, a thread asks the same server something simple, on a connection of its own. If that is not
answered either, all who wait for it are hung up on: to them the database is lost, as if it had been shut down. Until it
answers again, nobody else begins to wait.

SQLite is in this process; a server on it does without this file, and so without PostgreSQL's driver.
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
from policy import at_work

log = logging.getLogger("authz.server")

LOOK_EVERY = 0.5  # seconds
LONG = 3.0  # seconds without an answer, after which somebody asks whether the database still answers at all
ANSWER_WITHIN = 3  # seconds to connect, and as many to answer
AGAIN = 5.0  # seconds until that is asked again, as long as it answers


def start_hanging_up() -> None:
    """For as long as the process lives."""
    connection_created.connect(_watch_waiting, dispatch_uid="silence")
    threading.Thread(target=Silence().watch, name="silence", daemon=True).start()


def _watch_waiting(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Have it noted when this connection waits, whatever for."""
    if connection.vendor == "postgresql":
        connection.connection.wait = _Noted(connection.connection)


class _Noted:
    """In place of a connection's `wait`, by which all but the shortest way of questions goes."""

    def __init__(self, raw: Any):
        self._raw = weakref.ref(raw)
        self._wait = type(raw).wait

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        raw = self._raw()
        at_work.begun(raw)
        try:
            return self._wait(raw, *arguments, **options)
        finally:
            at_work.done(raw)


class Silence:
    """Looks for those who wait for long, and whether the server that they wait for answers others."""

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
        """Once."""
        for name, server in tuple(self._silent.items()):
            if answers(server):
                del self._silent[name]
                log.warning("the database answers again")
        connections.note_silence(bool(self._silent))
        waiting = [(raw, since) for raw, since in at_work.waiting.copy().items() if raw not in at_work.replicas]
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


Server = dict[str, Any]  # what it takes to connect to it


def name_of(raw: Any) -> str:
    """Where the connection leads, in words that are the same for all that lead there; nothing if it is lost."""
    try:
        return f"{raw.info.host} {raw.info.hostaddr} {raw.info.port} {raw.info.dbname}"
    except raw.OperationalError:
        return ""


def server_of(raw: Any) -> Server:
    """The very one that the connection leads to: a URL may name several."""
    known = {"host": raw.info.host, "port": raw.info.port, "password": raw.info.password}
    return {**raw.info.get_parameters(), **known, "options": "", "connect_timeout": ANSWER_WITHIN}


def answers(server: Server) -> bool:
    """Whether there is any answer in time: a refusal is one, too, and those who wait are told it themselves.

    So is what nobody expects: nobody is told for good that a database is away which cannot even be asked.
    """
    try:
        with closing(psycopg.connect(**server, autocommit=True)) as raw:
            raw.pgconn.send_query(b"SELECT 1")
            waiting = select.poll()  # `select` takes no numbers from 1,024 on
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
    for raw, since in at_work.waiting.copy().items():
        if name_of(raw) == name:
            _hang_up(raw, since)


def _hang_up(raw: Any, since: float) -> None:
    """Have the driver find the connection closed. What waits is not let go of before: its number means this socket."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(raw.pgconn.socket)) as mine:
        if at_work.waiting.get(raw) == since:
            mine.shutdown(socket.SHUT_RDWR)
