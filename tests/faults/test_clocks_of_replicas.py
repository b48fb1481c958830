"""A server of two processes before a primary and a replica, each with a clock that somebody sets."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import requests

from tests import postgresql
from tests.faults.clocks import Clock, clocks
from tests.faults.test_clocks import HOURS, POLICY, lend, may, role
from tests.postgresql import Server, free_port
from tests.replicas.cluster import DATABASE, pause, resume, wait_for
from tests.service import Client, Service, start_service

pytestmark = pytest.mark.long

WORKERS = 2


@dataclass
class Place:
    service: Service
    metrics: int  # port
    primary: Server
    replica: Server
    of_server: Clock
    of_primary: Clock
    of_replica: Clock

    def answers(self) -> float:
        """Of the replica, that counted."""
        text = requests.get(f"http://127.0.0.1:{self.metrics}/metrics", timeout=60).text
        lines = [line for line in text.splitlines() if line.startswith("authz_replica_answers_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in lines if 'outcome="counted"' in line)

    @property
    def log(self) -> str:
        return self.service.log.read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("replicas")
    with clocks(3) as (of_server, of_primary, of_replica):
        with of_primary.of_all():
            primary = postgresql.start(durable=True)  # else a clock that goes back keeps changes from the log
        if primary is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)("no PostgreSQL can be started here")
        url, metrics = primary.create(DATABASE), free_port()
        with of_replica.of_all():
            replica = primary.standby()
        given = {"DATABASE_REPLICA_URL": replica.url(DATABASE), "SECRET_KEY": "only for these tests " * 3}
        options = ("--dev", "--workers", str(WORKERS), "--metrics-port", str(metrics))
        service = start_service(folder, url, *options, **given, **of_server.variables)
        yield Place(service, metrics, primary, replica, of_server, of_primary, of_replica)
        assert service.stop() == 0
        replica.stop()
        primary.stop()


@pytest.fixture
def client(place) -> Iterator[Client]:
    """Whose questions the replica answers."""
    found = place.service.fresh_client()
    assert found.post("/policy", {"src": POLICY}).status_code == 200
    wait_for(lambda: is_answered_by_replica(place, found), "the replica answers")
    yield found
    for each in (place.of_server, place.of_primary, place.of_replica):
        each.set(0)
    resume(place.replica)
    assert "Traceback" not in place.log


def is_answered_by_replica(place: Place, client: Client) -> bool:
    before = place.answers()
    for _ in range(2 * WORKERS):
        may(client, "nobody")
    time.sleep(0.6)  # workers write down what they counted twice a second
    return place.answers() > before


def granted(client: Client, position: str) -> list[bool]:
    return [may(client, *each, position=position) for each in (("ann",), ("ann", "print"), ("ben",))]


def test_a_server_with_a_wrong_clock_asks_its_replica_and_tells_ends_by_it(place, client):
    position = lend(client)
    for hours in HOURS:
        place.of_server.set(hours)
        for _ in range(4):
            assert granted(client, position) == [True, True, True], hours
    place.of_server.set(-5)
    wait_for(lambda: is_answered_by_replica(place, client), "the replica answers")
    for each in (place.of_primary, place.of_replica):
        each.set(5)
    for hours in HOURS:
        place.of_server.set(hours)
        for _ in range(4):
            assert granted(client, position) == [False, False, True], hours


def test_positions_hold_in_all_processes(place, client):
    """Each request is a connection of its own, which either process takes."""
    for number in range(30):
        place.of_server.set(HOURS[number % len(HOURS)])
        changed = client.post("/facts", role(f"u{number}"))
        assert may(client, f"u{number}", position=changed.headers["OsoOffset"]), number


def test_a_revoked_key_is_refused_by_all_processes(place, client):
    """Within a second and a bit, though the replica knows nothing of it, and clocks say all sorts of things."""
    place.of_server.set(-5)
    pause(place.replica)
    key_hash = hashlib.sha256(client.key.encode()).hexdigest()
    place.primary.asked(f"UPDATE api_key SET revoked_at = now() WHERE hash = '{key_hash}'", DATABASE)
    body = {
        "actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc", "resource_id": "d",
    }  # fmt: skip
    wait_for(
        lambda: {client.post("/authorize", body).status_code for _ in range(6 * WORKERS)} == {401}, "it is refused", 10
    )
    place.of_server.set(5)
    assert {client.post("/authorize", body).status_code for _ in range(6 * WORKERS)} == {401}


def test_a_replica_that_was_restarted_is_one_doubt_of_each_process(place, client):
    for _ in range(8 * WORKERS):  # every thread has a connection to it
        may(client, "ann")
    before = place.log.count("is not in use")
    place.replica.halt()
    with place.of_replica.of_all():
        assert place.replica.run()
    wait_for(lambda: is_answered_by_replica(place, client), "the replica answers")
    for _ in range(20 * WORKERS):
        may(client, "ann")
        time.sleep(0.05)
    assert place.log.count("is not in use") - before <= WORKERS, place.log


def test_a_replica_with_another_clock_than_the_primary_is_left_out(place, client):
    position, reason = lend(client), "its clock differs from the primary's by 1"
    before = place.log.count(reason)
    place.of_primary.set(5)
    wait_for(lambda: place.log.count(reason) == before + WORKERS, "each process leaves it out")
    wait_for(lambda: not is_answered_by_replica(place, client), "nobody asks it")
    assert granted(client, position) == [False, False, True]
    place.of_primary.set(0)
    wait_for(lambda: is_answered_by_replica(place, client), "it is asked again")
