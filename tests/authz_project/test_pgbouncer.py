"""The service behind PgBouncer in transaction mode: each transaction may have another connection to the server."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.exceptions import ImproperlyConfigured

from authz_project.settings import database_from_url
from tests import pgbouncer, postgresql
from tests.checks import decisions
from tests.checks.conftest import about, fact
from tests.conversation import play
from tests.service import ROOT, start_service

CASES = json.loads((ROOT / "tests" / "cases" / "wire.json").read_text())["cases"]
DECISIONS = json.loads((ROOT / "tests" / "cases" / "decisions.json").read_text())[::16]
CONNECTIONS = 4  # of the pooler to the server; the service opens many more to the pooler
POLICY = 'actor User {} resource Doc { roles = ["reader"]; permissions = ["read"]; "read" if "reader"; }'


@pytest.fixture(scope="module")
def pooler():
    server = postgresql.start()
    if server is None:
        pytest.fail("no PostgreSQL can be started here")
    with pgbouncer.pooler(server, CONNECTIONS) as made:
        server.create("pooled")
        yield made
    server.stop()


@pytest.fixture(scope="module")
def pooled(pooler, tmp_path_factory):
    folder, url = tmp_path_factory.mktemp("pooled"), pooler.url("pooled")
    options = ("--dev", "--workers", "2", "--threads", "8")
    with pytest.raises(RuntimeError, match="run RECONNECT in PgBouncer's console"):
        start_service(folder, url, *options)
    pooler.console("RECONNECT")
    service = start_service(folder, url, *options)
    yield service
    assert service.stop() == 0
    assert "Traceback" not in service.log.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_conversation_goes_as_it_should(pooled, case):
    play(pooled, case)


@pytest.mark.parametrize("case", DECISIONS, ids=lambda case: str(case["seed"]))
def test_decisions_are_right(pooled, case):
    assert decisions.play(pooled.fresh_client(), case) == []


def test_many_connections_share_few(pooled):
    client = pooled.fresh_client()
    client.post("/policy", {"src": POLICY})

    def write_and_ask(number: int) -> bool:
        grant = fact("has_role", f"User:u{number}", "reader", "Doc:d")
        question = about(f"User:u{number}", "Doc:d", action="read")
        for _ in range(5):
            client.post("/facts", grant).raise_for_status()
            if not client.post("/authorize", question).json()["allowed"]:
                return False
            client.post("/bulk", {"delete": [grant]}).raise_for_status()
            if client.post("/authorize", question).json()["allowed"]:
                return False
        return True

    with ThreadPoolExecutor(24) as clients:
        assert all(clients.map(write_and_ask, range(48)))


def commanded(pooler, *arguments: str) -> str:
    environment = os.environ | {"DATABASE_URL": pooler.url("pooled"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, ROOT / "manage.py", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_missing_parameters_are_found(pooler, pooled):
    assert "E013" not in commanded(pooler, "check", "--deploy")
    pooler.server.asked("ALTER ROLE postgres IN DATABASE pooled RESET jit", "pooled")
    pooler.console("RECONNECT")
    assert "Connections of the pooler lack jit." in commanded(pooler, "check", "--deploy")


def test_a_backup_needs_a_connection_of_its_own(pooler, pooled):
    assert "pg_dump cannot use a pooler" in commanded(pooler, "backup", "copy.dump")


@pytest.mark.parametrize(
    ("url", "name", "said"),
    [("postgres://h/a?pool_mode=statement", "DATABASE_URL", "pool_mode must be session or transaction, not statement"),
     ("postgres://h/a?pool_mode=transaction", "DATABASE_REPLICA_URL", "connect to the server directly"),
     ("sqlite:///a?pool_mode=transaction", "DATABASE_URL", "connect to the server directly")],
)  # fmt: skip
def test_a_pool_mode_that_cannot_be_is_refused(url, name, said):
    with pytest.raises(ImproperlyConfigured, match=said):
        database_from_url(url, name)
