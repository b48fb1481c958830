"""The service in a distributed schema of Citus: all of its tables are on a worker, and it asks the coordinator."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from authz_project.backups import program
from tests import citus
from tests.checks import decisions
from tests.checks.conftest import about, fact
from tests.conversation import play
from tests.sampling import together
from tests.service import ROOT, Service, start_service

CASES = json.loads((ROOT / "tests" / "cases" / "wire.json").read_text())["cases"]
DECISIONS = json.loads((ROOT / "tests" / "cases" / "decisions.json").read_text())
# Citus writes anew what it passes on. The statements of these cases have each sequence of eight words that those of any
# case have; all cases are asked of PostgreSQL without it.
OF_EACH_FORM = (
    0, 1, 2, 3, 10, 12, 14, 17, 20, 21, 22, 23, 24, 28, 29, 36, 41, 43, 46, 47, 48, 51, 57, 62, 63, 64, 65, 69, 70, 72,
    73, 76, 78, 81, 83, 84, 87, 91, 95, 97, 98, 101, 103, 104, 107, 109, 111, 115,
)  # fmt: skip
POLICY = 'actor User {} resource Doc { roles = ["reader"]; permissions = ["read"]; "read" if "reader"; }'


@pytest.fixture(scope="module")
def cluster():
    with citus.cluster() as made:
        yield made


@pytest.fixture(scope="module")
def url(cluster) -> str:
    found = cluster.create("authz")
    _manage(found, "migrate")
    cluster.distribute("authz")
    return found


@pytest.fixture(scope="module")
def served(url, tmp_path_factory) -> Service:
    service = start_service(tmp_path_factory.mktemp("citus"), url, "--dev", "--workers", "1")
    yield service
    assert service.stop() == 0
    assert "Traceback" not in service.log.read_text()


def _manage(url: str, *command: str, **options) -> str:
    called = [sys.executable, ROOT / "manage.py", *command]
    environment = os.environ | {"DATABASE_URL": url}
    done = subprocess.run(called, env=environment, capture_output=True, text=True, timeout=180, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@together("case", CASES, told=lambda case: case["name"])
def test_the_conversation_goes_as_it_should(served, case):
    play(served, case)


@together("case", [DECISIONS[place] for place in OF_EACH_FORM], told=lambda case: f"seed {case['seed']}")
def test_decisions_are_right(served, case):
    assert decisions.play(served.fresh_client(), case) == []


def test_a_worker_is_not_used_as_the_database(url, cluster):
    """It has no tables but those of distributed schemas: the service would begin anew there."""
    at = cluster.workers[0].url("authz")
    called = [sys.executable, ROOT / "manage.py", "serve", "--dev"]
    done = subprocess.run(called, env=os.environ | {"DATABASE_URL": at}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "the server is a worker of Citus" in done.stderr
    assert cluster.workers[0].asked("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'", "authz") == [(0,)]


def test_workers_plan_as_a_server_would(served, cluster):
    asked = "SELECT setconfig FROM pg_db_role_setting WHERE setrole <> 0"
    for worker in cluster.workers:
        ((found,),) = worker.asked(asked, "authz")
        assert {"jit=off", "join_collapse_limit=1", "enable_memoize=off"} <= set(found)


def test_what_was_done_adds_up(served, url, tmp_path):
    """Each way to change facts says how many it has changed, which `verify` compares with what is stored."""
    client = served.fresh_client()
    grants = [fact("has_role", f"User:u{number}", "reader", f"Doc:d{number % 7}") for number in range(300)]
    client.post("/policy", {"src": POLICY}).raise_for_status()
    client.post("/batch", [{"inserts": grants[:200]}]).raise_for_status()
    client.post("/batch", [{"inserts": grants[100:]}, {"deletes": grants[:50]}]).raise_for_status()
    client.post("/batch", [{"inserts": [grants[0] | {"expires_at": "2099-01-01T00:00:00Z"}]}]).raise_for_status()
    client.post("/facts", grants[0]).raise_for_status()
    anyone = {"predicate": "has_role", "args": [None, None, {"type": "Doc", "id": "d1"}]}
    client.post("/batch", [{"deletes": [anyone]}]).raise_for_status()
    file = tmp_path / "facts.jsonl"
    file.write_text("\n".join(map(json.dumps, [*grants, *grants[:20]])))
    assert "320 facts read, 300 of them new" in _manage(url, "load_facts", str(file))
    assert "320 facts read, 0 of them new" in _manage(url, "load_facts", str(file))
    assert "WRONG" not in _manage(url, "verify")


def test_spaces_are_placed_told_moved_between_and_dumped(cluster, tmp_path):
    url = cluster.create("spaced")
    _manage(url, "migrate")
    for space in ("one", "two"):
        _manage(url, "spaces", "create", space)
    placed = "SELECT DISTINCT nodeport, split_part(table_name::text, '.', 1) FROM citus_shards"
    places = cluster.coordinator.asked(placed, "spaced")
    assert sorted(space for _, space in places) == ["one", "two"]
    assert {port for port, _ in places} <= {each.port for each in cluster.workers}
    _manage(url, "spaces", "add", "acme", "one")
    (tmp_path / "main.polar").write_text(POLICY)
    (tmp_path / "facts.csv").write_text("\n".join(f"has_role,User,u{n},String,reader,Doc,d" for n in range(500)))
    _manage(url, "load_policy", str(tmp_path / "main.polar"), "--environment", "acme")
    _manage(url, "load_facts", str(tmp_path / "facts.csv"), "--format", "csv", "--environment", "acme")
    assert "500 facts" in _manage(url, "spaces", "move", "acme", "two")
    cluster.coordinator.asked("ANALYZE two.authz_fact", "spaced")
    listed = {line.split()[0]: line for line in _manage(url, "spaces", "list").splitlines()}
    assert "1 environment, about 500 facts" in listed["two"] and "0 environments" in listed["one"]
    if program("pg_dump") and program("pg_restore"):
        call = _manage(url, "backup", "two.dump", "--space", "two", cwd=tmp_path).splitlines()[0]
        subprocess.run(call, shell=True, cwd=tmp_path, check=True, timeout=120)
        empty = cluster.coordinator.create("scratch")
        said = _manage(url, "verify", "two.dump", "--database", empty, cwd=tmp_path)
        assert "WRONG" not in said and "facts of `acme`: 500 stored" in said


def test_the_schema_moves_while_it_is_used(served, cluster):
    client = served.fresh_client()
    client.post("/policy", {"src": POLICY}).raise_for_status()
    (before,) = cluster.places("authz")
    is_moving = True

    def write_and_ask(number: int) -> int:
        done = 0
        while is_moving or not done:
            grant = fact("has_role", f"User:u{number}", "reader", f"Doc:d{done}")
            client.post("/facts", grant).raise_for_status()
            question = about(f"User:u{number}", f"Doc:d{done}", action="read")
            assert client.post("/authorize", question).json()["allowed"]
            client.delete("/facts", grant).raise_for_status()
            assert not client.post("/authorize", question).json()["allowed"]
            done += 1
        return done

    with ThreadPoolExecutor(4) as clients:
        running = [clients.submit(write_and_ask, number) for number in range(4)]
        try:
            cluster.move("authz")
        finally:
            is_moving = False
        assert all(each.result() for each in running)
    (after,) = cluster.places("authz")
    assert before != after
