"""A PostgreSQL that neither answers nor hangs up: callers are told so in time, and nobody has to restart anything."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import requests

from tests import postgresql
from tests.faults.pauses import paused
from tests.service import start_service

pytestmark = pytest.mark.long

WITHIN = 60  # seconds; ten where nobody else uses the machine


@pytest.fixture(scope="module")
def server():
    found = postgresql.start()
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no PostgreSQL can be started here")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def running(server, tmp_path_factory):
    url = server.create("hanging")
    service = start_service(tmp_path_factory.mktemp("hanging"), url, "--dev", "--workers", "1", STATEMENT_TIMEOUT="5")
    yield service
    service.stop()


def fact(name: str) -> dict:
    return {"predicate": "p", "args": [{"type": "T", "id": name}]}


def test_callers_are_told_and_all_goes_on_by_itself(server, running):
    client = running.fresh_client()
    assert client.post("/facts", fact("before")).status_code == 200
    assert [client.get("/facts").status_code for _ in range(8)] == [200] * 8
    with paused(server.process.pid):
        started = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(client.get, "/facts", timeout=WITHIN) for _ in range(12)]
            told = [pool.submit(client.post, "/facts", fact(f"during {n}"), timeout=WITHIN) for n in range(4)]
            health = requests.get(f"{running.origin}/healthcheck", timeout=WITHIN)
            answers = [each.result() for each in (*asked, *told)]
        assert health.status_code == 200
        assert {each.status_code for each in answers} == {503}
        assert {each.headers["Retry-After"] for each in answers} == {"1"}
        assert time.monotonic() - started < WITHIN
        started = time.monotonic()
        again = [client.get("/facts", timeout=WITHIN).status_code for _ in range(20)]
        assert set(again) == {503} and time.monotonic() - started < WITHIN, "nobody begins to wait anew"
    until = time.monotonic() + WITHIN
    while client.get("/facts").status_code != 200 and time.monotonic() < until:
        time.sleep(0.2)
    stored = {each["args"][0]["id"] for each in client.get("/facts").json()}
    assert "before" in stored and stored <= {"before", *(f"during {n}" for n in range(4))}
    assert client.post("/facts", fact("after")).status_code == 200
    log = running.log.read_text()
    assert "does not respond" in log and "responds again" in log and "Traceback" not in log


def test_a_statement_that_takes_long_is_let_be_while_the_database_answers(server, running):
    """A writer that somebody else holds up for longer than it takes to become suspicious."""
    client = running.fresh_client()
    assert client.post("/facts", fact("before")).status_code == 200
    with psycopg.connect(server.url("hanging")) as connection:
        connection.execute('UPDATE authz_environment SET "offset" = "offset"')
        found = []
        waiting = threading.Thread(target=lambda: found.append(client.post("/facts", fact("later"), timeout=WITHIN)))
        waiting.start()
        time.sleep(6)
        connection.rollback()
    waiting.join()
    assert found[0].status_code == 200, found[0].text
