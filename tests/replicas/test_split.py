"""After a failover the old primary may still take changes: of the servers that `DATABASE_URL` names, the new one counts."""

import os
from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection
from pytest_django.plugin import blocking_manager_key

from authz_project.keys import create_key
from policy.replicas import server as servers
from policy.replicas.server import Server
from policy.timeline import is_outdated, timeline
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


def promote(cluster: Cluster) -> int:
    """Have the standby take over while the primary goes on; return its port."""
    (standby,) = cluster.standbys
    standby.asked("SELECT pg_promote()")
    wait_for(lambda: standby.asked("SELECT NOT pg_is_in_recovery()") == [(True,)], "the standby has taken over")
    return standby.port


def test_a_new_connection_leads_to_the_server_that_has_taken_over(split):
    environment = EnvironmentFactory(slug="default")
    api = Api(environment, create_key(environment)[1])
    assert api.post("/facts", fact("p", ("T", "before"))).status_code == 200
    assert port() == split.primary.port and timeline.number == 1
    standby = split.standbys[0]
    caught_up = "SELECT pg_last_wal_replay_lsn() >= '{}'"
    position = split.primary.asked("SELECT pg_current_wal_lsn()::text")[0][0]
    wait_for(lambda: standby.asked(caught_up.format(position)) == [(True,)], "the standby has all")
    new = promote(split)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")  # of the old one, which goes on
    old = connection.connection
    connection.close()
    assert port() == new and timeline.number == 2 and old.closed
    assert connection.get_autocommit()
    assert api.post("/facts", fact("p", ("T", "after"))).status_code == 200
    count = "SELECT count(*) FROM fact"
    assert [each.asked(count, DATABASE)[0][0] for each in (split.primary, standby)] == [1, 2]
    look = Server("default")
    assert look.ask("SELECT inet_server_port()") == [(new,)]
    look.close()


def test_a_connection_to_the_old_one_is_outdated_as_soon_as_any_thread_has_met_the_new_one(split):
    assert port() == split.primary.port
    promote(split)
    assert not is_outdated(connection)
    look = Server("default")
    look.ask("SELECT 1")
    look.close()
    timeline.meet(2)
    assert is_outdated(connection)


def test_the_old_one_is_refused_where_the_new_one_is_away(split):
    new = promote(split)
    assert port() == new
    split.standbys[0].kill()
    connection.close()
    with pytest.raises(OperationalError, match="another server has taken over"):
        connection.ensure_connection()
