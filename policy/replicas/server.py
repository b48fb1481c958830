"""The connection by which a server is looked at. Its timeouts are short."""

from __future__ import annotations

import select
import time
from contextlib import suppress
from typing import Any

import psycopg
from django.db import connections
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

ANSWER_WITHIN = 1.0  # seconds


class Silent(Exception):
    """The server does not answer."""


class Server:
    """A connection to one of the databases of the settings. Connecting and answering have timeouts."""

    def __init__(self, alias: str):
        self.alias = alias
        self.may_know = False  # whether the role may read the control file
        self._raw: Any = None

    def ask(self, sql: str, values: list[str | None] | None = None, within: float = ANSWER_WITHIN) -> list[tuple]:
        """Return the rows of a small statement. After any failure, the next statement uses a new connection."""
        try:
            if self._raw is None:
                self._raw = self._connected()
            return self._answer(sql, values or [], time.monotonic() + within)
        except Exception:
            self.close()
            raise

    @property
    def is_connected(self) -> bool:
        return self._raw is not None

    def close(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            with suppress(Exception):
                raw.close()

    def _connected(self) -> Any:
        wrapper = connections.create_connection(self.alias)
        return psycopg.connect(**{**wrapper.get_connection_params(), "autocommit": True})

    def _answer(self, sql: str, values: list[str | None], until: float) -> list[tuple]:
        link = self._raw.pgconn
        link.send_query_params(sql.encode(), [None if each is None else each.encode() for each in values])
        waiting = select.poll()
        waiting.register(link.socket, select.POLLIN)
        while link.is_busy():
            if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
                raise Silent("it does not answer")
            link.consume_input()
        result = link.get_result()
        while link.get_result() is not None:
            pass
        if result.status != ExecStatus.TUPLES_OK:
            raise error_from_result(result)
        read = Transformer(self._raw)
        read.set_pgresult(result)
        return read.load_rows(0, result.ntuples, tuple)
