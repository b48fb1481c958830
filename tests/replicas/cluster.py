"""A primary and two standbys that stream from it, and this process connected to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections
from django.test import override_settings

from authz_project.settings import database_from_url, replicas_from_urls
from policy.core.clock import timeline
from policy.replicas import reading
from policy.replicas.replica import Replica
from policy.replicas.watch import ReplicaWatch
from tests import postgresql
from tests.postgresql import Server

PATIENCE = 60  # seconds for what is to come true
DATABASE = "replicated"


def wait_for(
    holds: Callable[[], object], what: str, instead: Callable[[], object] = lambda: "", within: float = PATIENCE
) -> None:
    """Wait until it holds. If it does not, fail with what is the case instead."""
    until = time.monotonic() + within
    while not holds():
        assert time.monotonic() < until, f"not true after {within} seconds: {what} {instead()}"
        time.sleep(0.02)


@dataclass
class Cluster:
    primary: Server
    standbys: list[Server]

    @property
    def url(self) -> str:
        return self.primary.url(DATABASE)

    @property
    def replica_urls(self) -> str:
        return ",".join(each.url(DATABASE) for each in self.standbys)

    def stop(self) -> None:
        for each in (*self.standbys, self.primary):
            each.stop()


def cluster(standbys: int = 2, durable: bool = False) -> Cluster | None:
    primary = postgresql.start(durable)
    if primary is None:
        return None
    primary.create(DATABASE)
    return Cluster(primary, [primary.standby() for _ in range(standbys)])


def pause(server: Server) -> None:
    """Have a standby replay nothing until it is resumed; the servers stay connected."""
    server.asked("SELECT pg_wal_replay_pause()")
    wait_for(lambda: server.asked("SELECT pg_get_wal_replay_pause_state()") == [("paused",)], "replay is paused")


def resume(server: Server) -> None:
    server.asked("SELECT pg_wal_replay_resume()")


@contextmanager
def connected(urls: tuple[str, str], migrate: bool = False, **values: object) -> Iterator[ReplicaWatch]:
    """Connect this process to a primary and its replicas."""
    url, replica_urls = urls
    config = {DEFAULT_DB_ALIAS: database_from_url(url)}
    config[DEFAULT_DB_ALIAS]["OPTIONS"].setdefault("target_session_attrs", "read-write")
    replicas = replicas_from_urls(replica_urls, config[DEFAULT_DB_ALIAS])
    names = {f"replica{place}": f"{each['HOST']}:{each['PORT']}" for place, each in enumerate(replicas, 1)}
    config |= dict(zip(names, replicas))
    before_settings = dict(connections.settings)
    before = connections[DEFAULT_DB_ALIAS] if DEFAULT_DB_ALIAS in connections.settings else None
    given = override_settings(REPLICAS=names, **values)
    connections.settings.update(connections.configure_settings(config))
    connections[DEFAULT_DB_ALIAS] = connections.create_connection(DEFAULT_DB_ALIAS)
    given.enable()
    begin_anew()
    try:
        if migrate:
            call_command("migrate", verbosity=0)
        yield reading.watch()
    finally:
        reading.watch().stop()
        begin_anew()
        for alias in config:
            connections[alias].close()
            del connections[alias]
        connections.settings.clear()
        connections.settings.update(before_settings)
        if before is not None:
            connections[DEFAULT_DB_ALIAS] = before
        given.disable()


def begin_anew() -> None:
    """Know as much as a process that has just begun."""
    reading.primary.watch = None
    timeline.number, timeline.has_moved = 0, False
    for forget in timeline._forgetting:
        forget()


def is_used(replica: Replica, watching: ReplicaWatch) -> bool:
    return replica.may_be_asked(settings.REPLICA_MAX_LAG, watching.known.timeline, time.monotonic())


def promote(servers: Cluster) -> None:
    """The primary is gone: promote the standby that is furthest. The others follow it."""
    wait_for(lambda: all(_has_replayed(each) for each in servers.standbys), "what arrived is replayed")
    *others, first = sorted(servers.standbys, key=_received)
    first.asked("SELECT pg_promote()")
    conninfo = psycopg.conninfo.make_conninfo(host="127.0.0.1", port=first.port, user="postgres")
    for each in others:
        each.asked(f"ALTER SYSTEM SET primary_conninfo = '{conninfo}'")
        each.asked("SELECT pg_reload_conf()")


def _received(server) -> int:
    return server.asked("SELECT pg_last_wal_receive_lsn() - '0/0'")[0][0]


def _has_replayed(server) -> bool:
    return server.asked("SELECT pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()")[0][0]
