"""Published clients, each loaded beside the others, and a world for them to ask about."""

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import psycopg
import pytest

from tests.service import Client

POLICY = """
actor User {}

resource Organization {
  roles = ["member", "owner"];
  "member" if "owner";
}

resource Repository {
  permissions = ["read", "write"];
  roles = ["reader", "writer"];
  relations = { organization: Organization };

  "reader" if "member" on "organization";
  "reader" if "writer";
  "read" if "reader";
  "write" if "writer";
}

has_permission(_: User, "read", repository: Repository) if is_public(repository);
has_permission(user: User, "write", _: Repository) if is_root(user);

declare has_age(User, Integer);
declare has_flag(User, Boolean);
"""

BINDINGS = """
facts:
  has_relation(Repository:_, organization, Organization:_):
    query: SELECT id, organization_id FROM repository
  is_public(Repository:_):
    query: SELECT id FROM repository WHERE is_public
"""


def cannot(reason: str) -> None:
    """What has to be fetched may be missing here, but not where it counts."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture(scope="session")
def oso_cloud(tmp_path_factory) -> Callable[[str], ModuleType]:
    """Loads a version of the Python client, beside whatever else is installed."""
    loaded: dict[str, ModuleType] = {}

    def load(version: str) -> ModuleType:
        if version not in loaded:
            folder = tmp_path_factory.mktemp(f"oso-cloud-{version}")
            _install(version, folder)
            with _imported_from(folder):
                loaded[version] = importlib.import_module("oso_cloud")
        return loaded[version]

    return load


def _install(version: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
    done = subprocess.run([*command, f"oso-cloud=={version}"], capture_output=True, text=True, check=False)
    if done.returncode:
        cannot(f"oso-cloud {version} cannot be installed: {done.stderr.strip().splitlines()[-1]}")


@contextmanager
def _imported_from(folder: Path):
    kept = _taken_out()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        _taken_out()
        sys.modules.update(kept)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == "oso_cloud"]
    return {name: sys.modules.pop(name) for name in names}


def public_methods(module: ModuleType) -> set[str]:
    """Of the client, and of the queries that it builds; without what these do for themselves."""
    classes = (value for part in vars(module).values() if isinstance(part, ModuleType) for value in vars(part).values())
    found = {each for each in classes if isinstance(each, type) and each.__name__ in ("Oso", "QueryBuilder")}
    methods = {name for each in (module.Oso, *found) for name in vars(each) if not name.startswith("_")}
    return methods - {"init", "clone"}


def called_in(file: str) -> set[str]:
    nodes = ast.walk(ast.parse(Path(file).read_text()))
    return {node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}


def end_role(client: Client, user: str, role: str) -> None:
    """Give somebody a role in acme until a time to come, which no published client can say."""
    args = [("User", user), ("String", role), ("Organization", "acme")]
    fact = {"predicate": "has_role", "args": [{"type": kind, "id": text} for kind, text in args]}
    answer = client.post("/facts", fact | {"expires_at": "2096-12-01T00:00:00Z"})
    assert answer.status_code == 200
    assert answer.json()["expires_at"] == "2096-12-01T00:00:00Z"


# ---- a caller's own database ----------------------------------------------------------------------------------


@pytest.fixture
def tables(database_urls):
    """A caller's database with repositories of which the service knows nothing."""
    with psycopg.connect(database_urls("postgresql", f"caller-{uuid4()}"), autocommit=True) as connection:
        connection.execute("CREATE TABLE repository (id text PRIMARY KEY, organization_id text, is_public boolean)")
        connection.execute(
            "INSERT INTO repository VALUES ('saw', 'acme', false), ('drill', 'evil', false), ('glue', NULL, true)"
        )
        yield connection


def rows(tables, sql: str) -> list[tuple]:
    return sorted(tables.execute(sql).fetchall())
