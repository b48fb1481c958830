"""Clocks that are set while a server runs: the database's says when something has ended, and no other."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import psycopg
import pytest

from tests import postgresql
from tests.conftest import DATABASES
from tests.faults.clocks import Clock, clocks
from tests.service import ROOT, Client, start_service

pytestmark = pytest.mark.long

POLICY = """
actor User {}
resource Doc { roles = ["reader"]; permissions = ["read", "print"]; "read" if "reader"; }
has_permission(user: User, "print", doc: Doc) if may_print(user, doc, end) and @current_unix_time < end;
"""
HOURS = (5, -5, 30, 0)  # how far a clock is ahead of the real time, one after the other
REQUESTS = 250  # that a key may send to a process in an hour: more than these tests do, but for that of this


class Place:
    """A server over a database, and a clock of each; the same one where the database is a file."""

    def __init__(self, folder: Path, kind: str, url: str, of_server: Clock, of_database: Clock):
        self.folder, self.kind, self.url = folder, kind, url
        self.of_server, self.of_database = of_server, of_database
        self.log = folder / "decisions.jsonl"
        given = {**of_server.variables, "DECISION_LOG": str(self.log), "RATE_LIMIT": f"{REQUESTS}/h"}
        secret = "only for these tests " * 3
        self.service = start_service(folder, url, "--dev", "--workers", "2", SECRET_KEY=secret, **given)

    def execute(self, statement: str, *values: object) -> list[tuple]:
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30)) as database, database:
                return database.execute(statement, values).fetchall()
        with psycopg.connect(self.url, autocommit=True) as database:
            cursor = database.execute(statement.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []

    def check(self) -> str:
        command = [sys.executable, ROOT / "manage.py", "check", "--deploy", "--tag", "service"]
        given = {"DATABASE_URL": self.url, "PYTHONPATH": str(ROOT), **self.of_server.variables}
        return subprocess.run(
            command, cwd=self.folder, env=os.environ | given, capture_output=True, text=True, timeout=60
        ).stderr  # fmt: skip


@pytest.fixture(scope="module", params=DATABASES)
def place(request, tmp_path_factory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("clocks")
    with clocks(2) as (first, second):
        if request.param == "sqlite":
            found = Place(folder, "sqlite", f"sqlite:///{folder / 'a.sqlite3'}", first, first)
            yield found
            assert found.service.stop() == 0
            return
        with second.of_all():
            server = postgresql.start()
        if server is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)("no PostgreSQL can be started here")
        found = Place(folder, "postgresql", server.create("clocks"), first, second)
        yield found
        assert found.service.stop() == 0
        server.stop()


@pytest.fixture
def client(place) -> Iterator[Client]:
    """Of an environment of its own, when all clocks are right."""
    found = place.service.fresh_client()
    assert found.post("/policy", {"src": POLICY}).status_code == 200
    yield found
    place.of_server.set(0)
    place.of_database.set(0)
    assert "Traceback" not in place.service.log.read_text()


def fact(predicate: str, user: str, *more: tuple[str, str]) -> dict:
    args = [("User", user), *more]
    return {"predicate": predicate, "args": [{"type": kind, "id": text} for kind, text in args]}


def role(user: str, end: datetime | None = None) -> dict:
    found = fact("has_role", user, ("String", "reader"), ("Doc", "d"))
    return found if end is None else found | {"expires_at": end.isoformat()}


def may(client: Client, user: str, action: str = "read", position: str = "", **more: object) -> bool:
    body = {"actor_type": "User", "actor_id": user, "action": action, "resource_type": "Doc", "resource_id": "d"}
    answer = client.post("/authorize", body | more, headers={"OsoOffset": position} if position else {})
    assert answer.status_code == 200, answer.text
    return answer.json()["allowed"]


def in_an_hour() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


def lend(client: Client) -> str:
    """What ends within an hour: a role by its fact's own end, a permission by the policy; the position of that."""
    end = in_an_hour()
    seconds = ("Integer", str(int(end.timestamp())))
    stored = [role("ann", end), fact("may_print", "ann", ("Doc", "d"), seconds), role("ben")]
    answer = client.post("/batch", [{"inserts": stored}])
    assert answer.status_code == 200, answer.text
    return answer.headers["OsoOffset"]


def granted(client: Client) -> list[bool]:
    """Asked by all processes, and each time often enough for an answer to be kept."""
    found = [(may(client, "ann"), may(client, "ann", "print"), may(client, "ben")) for _ in range(6)]
    assert len(set(found)) == 1, "all of them say the same"
    return list(found[0])


def test_what_ends_ends_by_the_databases_clock(place, client):
    lend(client)
    assert granted(client) == [True, True, True]
    place.of_database.set(5)
    assert granted(client) == [False, False, True]
    whose = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc"}
    assert client.post("/list", {**whose, "page_size": 10_000}).json()["results"] == []
    assert len(client.get("/facts", params={"predicate": "has_role"}).json()) == 1
    explained = client.post("/explain", {
        "actor_type": "User", "actor_id": "ann", "action": "print", "resource_type": "Doc", "resource_id": "d",
    })  # fmt: skip
    assert explained.json()["allowed"] is False
    late = client.post("/facts", role("eve", in_an_hour()))
    assert late.status_code == 400 and "is in the past" in late.json()["message"]


def test_a_server_whose_clock_is_wrong_answers_as_the_database_would(place, client):
    if place.kind == "sqlite":
        pytest.skip("a file has the clock of the machine")
    lend(client)
    for hours in HOURS:
        place.of_server.set(hours)
        assert granted(client) == [True, True, True], hours
    place.of_database.set(5)
    for hours in HOURS:
        place.of_server.set(hours)
        assert granted(client) == [False, False, True], hours
    place.of_server.set(-5)
    local = client.post("/authorize_query", {
        "query": {
            "actor_type": "User", "actor_id": "ann", "action": "print", "resource_type": "Doc", "resource_id": "d",
        },
        "data_bindings": "facts: {}\nsql_types: {User: text, Doc: text}",
    })  # fmt: skip
    assert local.status_code == 200, local.text
    assert place.execute(local.json()["sql"])[0][0] in (0, False)


def test_a_key_ends_by_the_databases_clock(place, client):
    end = in_an_hour().astimezone(UTC)
    shown = f"{end:%Y-%m-%d %H:%M:%S}" + ("" if place.kind == "sqlite" else "+00")
    key_hash = hashlib.sha256(client.key.encode()).hexdigest()
    place.execute("UPDATE api_key SET expires_at = ? WHERE hash = ?", shown, key_hash)
    assert may(client, "ben") is False
    place.of_database.set(5)
    assert {client.get("/facts").status_code for _ in range(8)} == {401}
    assert {client.post("/facts", role("ann")).status_code for _ in range(4)} == {401}
    place.of_database.set(-5)
    assert may(client, "ben") is False


def test_revisions_never_go_back(place, client):
    """Whatever the clock does; and those who ask as of a time are answered, or told that it is in the future."""
    for number, hours in enumerate((0, 5, -5, 30, -30, 0)):
        place.of_database.set(hours)
        for part in range(3):
            assert client.post("/facts", role(f"u{number}{part}")).status_code == 200
        assert may(client, f"u{number}2") is True
        if hours > 0:  # what they saw is over
            assert may(client, "u00", as_of=datetime.now(UTC).isoformat()) is True
    changes = client.get("/changes", params={"after": 0}).json()["changes"]
    numbers, times = [each["revision"] for each in changes], [each["at"] for each in changes]
    assert numbers == sorted(set(numbers)) and len(numbers) == numbers[-1]
    assert times == sorted(times)
    for each in changes:
        assert may(client, "u02", as_of=each["revision"]) is (each["revision"] > 3)
    refused = client.get("/facts", params={"as_of": (datetime.now(UTC) + timedelta(hours=60)).isoformat()})
    assert refused.status_code == 400 and "in the future" in refused.json()["message"]


def test_decisions_are_written_down_whatever_time_it_is(place, client):
    for number, hours in enumerate(HOURS):
        place.of_server.set(hours)
        may(client, f"who{number}")
    wanted, asked = {f"who{number}" for number in range(len(HOURS))}, set()
    until = time.monotonic() + 30
    while not wanted <= asked and time.monotonic() < until:
        time.sleep(0.1)
        asked = {orjson.loads(line)["question"].get("actor_id") for line in place.log.read_bytes().splitlines()}
    assert wanted <= asked


def test_how_often_a_key_may_ask_has_nothing_to_do_with_the_time_of_day(place, client):
    in_a_row = 0  # refused: then no process lets it through
    for _ in range(4 * REQUESTS):
        in_a_row = in_a_row + 1 if client.get("/facts").status_code == 429 else 0
        if in_a_row == 12:
            break
    assert in_a_row == 12
    for hours in HOURS:
        place.of_server.set(hours)
        place.of_database.set(hours)
        refused = client.get("/facts")
        assert refused.status_code == 429 and 0 < int(refused.headers["Retry-After"]) <= 3600 / REQUESTS, hours


def test_clocks_that_differ_are_told(place, client):
    place.of_server.set(5)
    told = place.check()
    if place.kind == "sqlite":
        assert "clock" not in told
    else:
        assert re.search(r"authz\.E006\) The database's clock differs by 1(7999|8000)\.\d seconds", told), told
