"""After a failover the old primary may still take changes: of the servers in `DATABASE_URL`, the new one counts."""

import os
from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection, connections
from pytest_django.plugin import blocking_manager_key

from authz_project.keys import create_key
from policy.core.clock import timeline
from policy.replicas import replica as servers
from policy.replicas.replica import Server
from tests import postgresql
from tests.conftest import Api
from tests.factories import EnvironmentFactory
from tests.faults.worlds import fact
from tests.replicas import cluster as replicated
from tests.replicas.cluster import DATABASE, Cluster, connected, wait_for


@pytest.fixture
def split(request, monkeypatch) -> Iterator[Cluster]:
    """A primary and a standby; this process knows both, the primary first, and compares them at each connect."""
    found = replicated.cluster(standbys=1)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no PostgreSQL can be started here")
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in (found.primary, *found.standbys))
    monkeypatch.setattr(servers, "_SHARE", float("inf"))
    blocker = request.config.stash[blocking_manager_key]
    with blocker.unblock(), connected((f"postgres://postgres@{hosts}/{DATABASE}", ""), migrate=True):
        yield found
    found.stop()


def port() -> int:
    connection.ensure_connection()
    return connection.connection.info.port


def promote(standby: postgresql.Server) -> None:
    """Have it take over, while the primary goes on."""
    standby.asked("SELECT pg_promote()")
    wait_for(lambda: standby.asked("SELECT NOT pg_is_in_recovery()") == [(True,)], "the standby has taken over")


def test_new_connections_lead_to_the_server_that_has_taken_over_and_never_back(split):
    environment = EnvironmentFactory(slug="default")
    api = Api(environment, create_key(environment)[1])
    assert api.post("/facts", fact("p", ("T", "before"))).status_code == 200
    assert port() == split.primary.port and timeline.number == 1
    (standby,) = split.standbys
    position = split.primary.asked("SELECT pg_current_wal_insert_lsn()::text")[0][0]
    caught_up = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
    wait_for(lambda: standby.asked(caught_up) == [(True,)], "the standby has all")
    promote(standby)
    old = connection.connection
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_is_in_recovery()")
        assert cursor.fetchone() == (False,), "the old primary goes on"
    another = connections.create_connection("default")
    another.connect()  # as another thread does
    assert another.connection.info.port == standby.port and timeline.number == 2
    assert another.get_autocommit()
    another.close()
    assert api.post("/facts", fact("p", ("T", "after"))).status_code == 200, "the outdated connection was replaced"
    assert port() == standby.port and old.closed
    stored = [each.asked("SELECT count(*) FROM authz_fact", DATABASE) for each in (split.primary, standby)]
    assert stored == [[(1,)], [(2,)]]
    look = Server("default")
    assert look.ask("SELECT inet_server_port()") == [(standby.port,)], "replicas are compared with the new one"
    look.close()
    standby.kill()
    connection.close()
    with pytest.raises(OperationalError, match=r"a server on timeline \d+ has taken over"):
        connection.ensure_connection()
