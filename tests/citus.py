"""Citus, for one test run: a coordinator and two workers, and databases with a distributed schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import postgresql
from tests.postgresql import Server

SCHEMA = "space"
SETTINGS = (
    "shared_preload_libraries=citus", "wal_level=logical", "max_prepared_transactions=200",
    "citus.node_conninfo=sslmode=disable",  # else a server looks for certificates, in the home of who runs the tests
)  # fmt: skip


class Cluster:
    def __init__(self, servers: list[Server]):
        self.coordinator, *self.workers = servers

    def create(self, database: str) -> str:
        """A database whose tables are going to be in an empty schema, and its URL."""
        for each in (self.coordinator, *self.workers):
            each.create(database)
            each.asked("CREATE EXTENSION citus", database)
        asked = self.coordinator.asked
        asked(f"SELECT citus_set_coordinator_host('127.0.0.1', {self.coordinator.port})", database)
        for each in self.workers:
            asked(f"SELECT citus_add_node('127.0.0.1', {each.port})", database)
        asked(f"CREATE SCHEMA {SCHEMA}", database)
        asked(f'ALTER DATABASE "{database}" SET search_path = {SCHEMA}', database)
        return self.coordinator.url(database)

    def distribute(self, database: str) -> None:
        """Give the schema, whose tables exist by now, to a worker."""
        self.coordinator.asked(f"SELECT citus_schema_distribute('{SCHEMA}')", database)

    def places(self, database: str) -> list[int]:
        """The ports of the workers that have tables of the schema."""
        found = self.coordinator.asked("SELECT DISTINCT nodeport FROM citus_shards", database)
        return [port for (port,) in found]

    def move(self, database: str) -> None:
        """Move the schema to the other worker, while it is used."""
        (here,) = self.places(database)
        other = next(each.port for each in self.workers if each.port != here)
        self.coordinator.asked(f"SELECT citus_schema_move('{SCHEMA}', '127.0.0.1', {other})", database)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Skips where Citus is not installed, in CI too: no package registry has it."""
    servers: list[Server] = []
    try:
        for _ in range(3):
            server = postgresql.start(extension="citus", more=SETTINGS)
            if server is None:
                pytest.skip("Citus is not installed, or PostgreSQL does not start with it")
            servers.append(server)
        yield Cluster(servers)
    finally:
        for each in servers:
            each.stop()
