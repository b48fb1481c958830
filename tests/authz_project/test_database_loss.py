"""The database goes away and comes back; the service says so, and needs nobody's help."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests import postgresql
from tests.service import start_service


@pytest.fixture(scope="module")
def server():
    found = postgresql.start()
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no PostgreSQL can be started here")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def running(server, tmp_path_factory):
    url = server.create("loss")
    service = start_service(tmp_path_factory.mktemp("loss"), url, "--dev", "--workers", "1")
    yield service
    service.stop()


def codes(client, number: int) -> list[int]:
    """What many requests at once are answered with."""
    with ThreadPoolExecutor(8) as pool:
        return [answer.status_code for answer in pool.map(lambda _: client.get("/facts"), range(number))]


@pytest.mark.long
def test_killed_connections_are_replaced(server, running):
    client = running.fresh_client()
    assert set(codes(client, 40)) == {200}
    with psycopg.connect(server.url("loss"), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'loss' AND pid <> pg_backend_pid()"
        )
    told = [client.get("/facts").status_code for _ in range(40)]
    assert set(told) <= {200, 503}
    assert told.count(503) <= 1
    assert set(codes(client, 40)) <= {200, 503}
    assert set(codes(client, 40)) == {200}


def test_a_database_that_is_down_and_up_again(server, running):
    client = running.fresh_client()
    fact = {"predicate": "p", "args": [{"type": "T", "id": "x"}]}
    assert client.post("/facts", fact).status_code == 200
    server.halt()
    for answer in (client.get("/facts"), client.post("/facts", fact), client.get("/stats"), client.post("/clear_data")):
        assert (answer.status_code, set(answer.json())) == (503, {"message"})
    assert client.get("/healthcheck").status_code == 200
    before, started = len(running.log.read_text()), time.monotonic()
    assert set(codes(client, 200)) == {503}
    told = running.log.read_text()[before:]
    assert "Traceback" not in told and len(told.splitlines()) <= 3 * (time.monotonic() - started + 1), told
    assert server.run()
    deadline = time.monotonic() + 20
    while client.get("/facts").status_code != 200 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert client.get("/facts").json() == [fact]
    assert set(codes(client, 40)) == {200}
