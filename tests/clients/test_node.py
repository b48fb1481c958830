"""The Node client as it is published today: every public method."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import BINDINGS, POLICY, cannot, rows

VERSION = "2.6.0"
SCRIPT = Path(__file__).with_name("node.mjs")


@pytest.fixture(scope="session")
def package(tmp_path_factory) -> Path:
    if not (shutil.which("node") and shutil.which("npm")):
        cannot("there is no node, or no npm")
    folder = tmp_path_factory.mktemp("node")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-save", f"oso-cloud@{VERSION}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        cannot(f"oso-cloud {VERSION} cannot be installed: {done.stderr[-500:]}")
    return folder


@pytest.fixture
def told(service, package, tmp_path) -> dict:
    """What the client was answered."""
    client, bindings = service.fresh_client(), tmp_path / "bindings.yaml"
    bindings.write_text(BINDINGS)
    command = ["node", SCRIPT, package, client.origin, client.key, bindings]
    done = subprocess.run(command, input=POLICY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def value(type_name: str, text: str) -> dict:
    return {"type": type_name, "id": text}


def test_everything_is_answered(told, tables):
    owner, writer = told["roles"]
    assert owner == ["has_role", value("User", "ann"), value("String", "owner"), value("Organization", "acme")]
    assert writer[1:] == [value("User", "bob"), value("String", "writer"), value("Repository", "hammer")]
    assert (told["numbers"][0][2], told["truths"][0][2]) == (value("Integer", "33"), value("Boolean", "true"))
    assert told["deleted"] == []
    role = [value("User", "cat"), value("String", "owner"), value("Organization", "acme")]
    assert told["ending"] == [[["has_role", *role]], True]
    assert told["lasting"] == [{"predicate": "has_role", "args": role}]
    assert told["metadata"]["resources"]["Repository"]["permissions"] == ["read", "write"]
    assert told["allowed"] == [True, False, True]
    assert told["actions"] == [["read", "write"], ["read", "write"]]
    assert told["list"] == [["anvil", "hammer"], ["anvil"]]
    assert told["page"]["results"] == ["anvil", "hammer"] and not told["page"].get("nextPageToken")
    assert told["parity"] is True
    assert told["query"] == {
        "whether": True,
        "values": ["ann", "bob"],
        "tuples": [["ann", "anvil"], ["ann", "hammer"], ["bob", "hammer"]],
        "map": {"ann": {"anvil": ["read"], "hammer": ["read"]}, "bob": {"hammer": ["read", "write"]}},
        "joined": ["hammer"],
        "narrowed": ["anvil", "hammer"],
        "context": ["read", "write"],
    }
    assert told["methods"]
    assert set(told["methods"]) - set(re.findall(r"\.(\w+)\(", SCRIPT.read_text())) == set()
    _check_sql(told["sql"], tables)
    assert {name: refusal["status"] for name, refusal in told["refusals"].items()} == {
        "fact": 400,
        "policy": 400,
        "key": 401,
    }
    assert re.search(r"no_such.*\(Request ID: [0-9a-f-]{36}\)", told["refusals"]["fact"]["message"])


def _check_sql(sql: dict[str, str], tables) -> None:
    assert rows(tables, sql["authorize"]) == rows(tables, sql["whether"]) == [(True,)]
    assert rows(tables, sql["actions"]) == [("read",)]
    assert rows(tables, f"SELECT id FROM repository WHERE {sql['list']}") == [("glue",), ("saw",)]
    assert rows(tables, f"SELECT id FROM repository WHERE {sql['filter']}") == [("glue",), ("saw",)]
    assert rows(tables, sql["select"]) == [("anvil",), ("glue",), ("hammer",), ("saw",)]
