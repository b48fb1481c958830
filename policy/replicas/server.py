"""The connection by which a server is looked at, with short timeouts; and which of several primaries counts."""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from policy.ground.clock import NUMBER, timeline

log = logging.getLogger("authz.database")

ANSWER_WITHIN = 1.0  # seconds
CONNECT_WITHIN = 2  # seconds, to a server that is only compared with another one
_SHARE = 0.05  # of the time, at the most, that new connections may spend on comparing: a server may not answer

_compare_at = 0.0  # when the servers may be compared again, by `monotonic`


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
            return answered(self._raw, sql, values or [], time.monotonic() + within)
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
        raw = psycopg.connect(**wrapper.get_connection_params())
        if self.alias == DEFAULT_DB_ALIAS and "," in wrapper.settings_dict["HOST"]:
            raw, _ = newest(wrapper, raw)
        raw.autocommit = True
        return raw


def answered(raw: Any, sql: str, values: list[str | None], until: float) -> list[tuple]:
    """Return the rows of a small statement; raise `Silent` if the server does not answer `until` then."""
    link = raw.pgconn
    link.send_query_params(sql.encode(), [None if each is None else each.encode() for each in values])
    waiting = select.poll()
    waiting.register(link.socket, select.POLLIN)
    while link.is_busy():
        if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
            raise Silent("it does not respond")
        link.consume_input()
    result = link.get_result()
    while link.get_result() is not None:
        pass
    if result.status != ExecStatus.TUPLES_OK:
        raise error_from_result(result)
    read = Transformer(raw)
    read.set_pgresult(result)
    return read.load_rows(0, result.ntuples, tuple)


def newest(wrapper: Any, raw: Any) -> tuple[Any, int]:
    """Return a connection to the primary with the latest timeline, and its timeline; 0 if that is not known.

    It is the given connection, unless the URL names several servers. After a failover, the old primary may still take
    changes, which are lost once it is made a standby. So the other servers are asked, too; the given connection is
    closed if another one takes changes on a later timeline.
    """
    global _compare_at
    best, latest = raw, _timeline_of(raw)
    started = time.monotonic()
    hosts = wrapper.settings_dict["HOST"].split(",")
    if len(hosts) == 1 or not latest or (started < _compare_at and latest >= timeline.number):
        return best, latest
    for parameters in _others(wrapper, raw, hosts):
        try:
            other = psycopg.connect(**parameters)
            number = _timeline_of(other)
        except (psycopg.Error, OperationalError):  # it is away, or takes no changes
            continue
        worse = other
        if number > latest:
            best, worse, latest = other, best, number
        worse.close()
    _compare_at = started + (time.monotonic() - started) / _SHARE
    return best, latest


def _others(wrapper: Any, raw: Any, hosts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the parameters to connect to each server of the URL but that of the given connection."""
    usual = wrapper.get_connection_params()
    ports = str(usual.get("port") or raw.info.port).split(",")
    for place, host in enumerate(hosts):
        port = ports[place if len(ports) > 1 else 0] or "5432"
        if (host, port) != (raw.info.host, str(raw.info.port)):
            yield {**usual, "host": host, "port": port, "connect_timeout": CONNECT_WITHIN}


def _timeline_of(raw: Any) -> int:
    """Return the timeline of a server that takes changes; 0 if it is in recovery, or if the role may not read it."""
    try:
        return answered(raw, f"SELECT {NUMBER}", [], time.monotonic() + CONNECT_WITHIN)[0][0]
    except Silent as reason:
        raw.close()
        raise OperationalError(f"the database does not respond: {reason}") from None
    except psycopg.DatabaseError as reason:
        if raw.closed:
            raise
        log.debug("cannot read the timeline of the database: %s", reason)
        return 0
