"""The service behind PgBouncer in transaction mode: each transaction may have another connection to the server.

All is tested without prepared statements and, where there is a PgBouncer that has them, with them.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from psycopg.pq import ExecStatus

from authz_project.settings import database_from_url
from checks.asking import postgresql as asking
from tests import pgbouncer, postgresql
from tests.checks import decisions
from tests.checks.conftest import about, fact
from tests.conversation import play
from tests.sampling import together
from tests.service import ROOT, start_service

CASES = json.loads((ROOT / "tests" / "cases" / "wire.json").read_text())["cases"]
DECISIONS = json.loads((ROOT / "tests" / "cases" / "decisions.json").read_text())[::16]
OPENED = 2 * (8 + 16)  # connections of the service: for questions, and for changes
CONNECTIONS = 4  # of the pooler to the server; the service opens many more to the pooler
SPACES = (("spaced", "test"), ("spaced", "europe"))
POLICY = 'actor User {} resource Doc { roles = ["reader"]; permissions = ["read"]; "read" if "reader"; }'


@pytest.fixture(scope="module", params=["as is", "prepares"] if pgbouncer.has_newer() else ["as is"])
def prepares(request) -> bool:
    """Whether the pooler prepares statements."""
    return request.param == "prepares"


@pytest.fixture(scope="module")
def pooler(prepares):
    server = postgresql.start()
    if server is None:
        pytest.fail("no PostgreSQL can be started here")
    with pgbouncer.pooler(server, CONNECTIONS, prepares, SPACES) as made:
        server.create("pooled")
        server.create("spaced")
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


@together("case", CASES, told=lambda case: case["name"])
def test_the_conversation_goes_as_it_should(pooled, case):
    play(pooled, case)


@together("case", DECISIONS, told=lambda case: f"seed {case['seed']}")
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


def test_statements_are_prepared_if_the_pooler_can(pooler, pooled, prepares):
    client = pooled.fresh_client()
    client.post("/policy", {"src": POLICY})
    for number in range(100):
        client.post("/facts", fact("has_role", f"User:u{number}", "reader", "Doc:d"))
        client.post("/authorize", about(f"User:u{number}", "Doc:d", action="read"))
    with ExitStack() as stack:  # all of the pooler's connections
        connections = [stack.enter_context(psycopg.connect(pooler.url("pooled", ""))) for _ in range(CONNECTIONS)]
        found = [each.execute("SELECT name FROM pg_prepared_statements").fetchall() for each in connections]
    names = {name.rstrip("0123456789") for rows in found for (name,) in rows}
    assert names == ({"PGBOUNCER_"} if prepares else set())


def test_what_was_not_asked_for_longest_makes_room(pooler, pooled, prepares, monkeypatch):
    monkeypatch.setattr(asking, "MOST_PREPARED", 3)
    with psycopg.connect(pooler.url("pooled", ""), autocommit=True, prepare_threshold=None) as raw:
        names = []
        for _ in range(2):
            for number in range(5):
                for _ in range(2):
                    assert asking.rows(raw, f"SELECT {number}", []) == [(number,)]
                    names += [name for name in asking._names.get(raw, {}).values() if name]
        if not prepares:
            assert names == []
            return
        gone, *_, kept = names
        assert raw.pgconn.exec_prepared(kept, []).get_value(0, 0) == b"4"
        assert raw.pgconn.exec_prepared(gone, []).status == ExecStatus.FATAL_ERROR


def test_a_pooler_may_stop_to_prepare(pooler, pooled, prepares):
    """A changed `max_prepared_statements` breaks open connections: each at most one request, which can be retried."""
    client = pooled.fresh_client()
    client.post("/policy", {"src": POLICY})
    for value in [0, pgbouncer.PREPARED] if prepares else []:
        pooler.console(f"SET max_prepared_statements = {value}")
        failed = 0
        for number in range(100):
            grant = fact("has_role", f"User:u{value}-{number}", "reader", "Doc:d")
            question = about(f"User:u{value}-{number}", "Doc:d", action="read")
            for path, body in (("/facts", grant), ("/authorize", question)):
                while (told := client.post(path, body)).status_code == 503:
                    failed += 1
                told.raise_for_status()
            assert told.json() == {"allowed": True}
        assert failed <= OPENED


def commanded(pooler, *arguments: str, database: str = "pooled") -> str:
    environment = os.environ | {"DATABASE_URL": pooler.url(database), "PYTHONPATH": str(ROOT)}
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


# ---- spaces ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spaced(pooler, tmp_path_factory):
    """A service with a space for the environments of tests, and another one."""
    folder, url = tmp_path_factory.mktemp("spaced"), pooler.url("spaced")
    with pytest.raises(RuntimeError, match="run RECONNECT in PgBouncer's console"):
        start_service(folder, url, "--dev")
    pooler.console("RECONNECT")
    service = start_service(folder, url, "--dev", "--workers", "1", "--threads", "8")
    for space in ("test", "europe"):
        assert f"Space `{space}` is ready" in commanded(pooler, "spaces", "create", space, database="spaced")
    yield service
    assert service.stop() == 0
    assert "Traceback" not in service.log.read_text()


def keys_of(pooler, schema: str) -> int:
    ((number,),) = pooler.server.asked(f"SELECT COUNT(*) FROM {schema}.api_key", "spaced")
    return number


@together("case", CASES[::4], told=lambda case: case["name"])
def test_the_conversation_goes_as_it_should_in_a_space(spaced, case):
    play(spaced, case)


@together("case", DECISIONS[::4], told=lambda case: f"seed {case['seed']}")
def test_decisions_are_right_in_a_space(spaced, case):
    assert decisions.play(spaced.fresh_client(), case) == []


def test_environments_of_tests_are_in_their_space(spaced, pooler):
    at_home, in_space = keys_of(pooler, "public"), keys_of(pooler, "test")
    spaced.fresh_client()
    assert (keys_of(pooler, "public"), keys_of(pooler, "test")) == (at_home, in_space + 1)


def test_an_environment_moves_through_the_pooler_while_it_is_asked(spaced, pooler):
    assert "created" in commanded(pooler, "spaces", "add", "acme", "europe", database="spaced")
    key = commanded(pooler, "api_keys", "create", "--environment", "acme", database="spaced").split()[-1]
    client = spaced.client(key)
    client.post("/policy", {"src": POLICY}).raise_for_status()
    is_moving = True

    def sent(path: str, body: dict):
        """The answer. On a busy machine, a move may take longer than requests wait for it."""
        while (answer := client.post(path, body)).status_code == 503:
            assert "the environment is being moved" in answer.text
        answer.raise_for_status()
        return answer

    def write_and_ask(number: int) -> int:
        done = 0
        while is_moving or not done:
            grant = fact("has_role", f"User:u{number}", "reader", f"Doc:d{done}")
            question = about(f"User:u{number}", f"Doc:d{done}", action="read")
            sent("/facts", grant)
            assert sent("/authorize", question).json()["allowed"]
            done += 1
        return done

    with ThreadPoolExecutor(4) as clients:
        running = [clients.submit(write_and_ask, number) for number in range(4)]
        try:
            for space in ("home", "test", "europe"):
                assert "moved to" in commanded(pooler, "spaces", "move", "acme", space, database="spaced")
        finally:
            is_moving = False
        stored = sum(each.result() for each in running)
    assert pooler.server.asked("SELECT COUNT(*) FROM europe.authz_fact", "spaced") == [(stored,)]
    assert pooler.server.asked("SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    assert "WRONG" not in commanded(pooler, "verify", database="spaced")


def test_a_space_that_the_pooler_does_not_know_is_not_created(spaced, pooler):
    said = commanded(pooler, "spaces", "create", "asia", database="spaced")
    assert 'database "spaced_asia" does not exist' in said
    assert "spaced_asia = host=… dbname=spaced connect_query='SET search_path TO asia'" in said
    pooler.server.create("spaced_africa")  # which the pooler's `*` leads to
    said = commanded(pooler, "spaces", "create", "africa", database="spaced")
    assert "PgBouncer's database `spaced_africa` has another search_path than `africa`" in said
    assert pooler.server.asked("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'", "spaced_africa") == [(0,)]
    assert "africa" not in commanded(pooler, "spaces", "list", database="spaced")


@pytest.mark.parametrize(
    ("url", "name", "said"),
    [("postgres://h/a?pool_mode=statement", "DATABASE_URL", "pool_mode must be session or transaction, not statement"),
     ("postgres://h/a?pool_mode=transaction", "DATABASE_REPLICA_URL", "connect to the server directly"),
     ("sqlite:///a?pool_mode=transaction", "DATABASE_URL", "connect to the server directly")],
)  # fmt: skip
def test_a_pool_mode_that_cannot_be_is_refused(url, name, said):
    with pytest.raises(ImproperlyConfigured, match=said):
        database_from_url(url, name)
