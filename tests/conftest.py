"""Every test that takes `db` or `service` runs twice: over SQLite, and over a real PostgreSQL."""

import gc
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import orjson
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client as DjangoClient
from django.test.signals import setting_changed
from pytest_django.plugin import blocking_manager_key

from authz_project import keys
from authz_project.keys import create_key, hash_of
from authz_project.secret_key import secret_that_is_set
from authz_project.settings import database_from_url
from checks.explain import explain
from policy.models import Environment
from tests import postgresql
from tests.factories import EnvironmentFactory
from tests.locked import wait_until_free
from tests.service import Service, start_service
from tests.shares import dealt, processes

DATABASES = ("sqlite", "postgresql")
# Fixtures, modules and folders by which a test starts programs.
NOT_QUICK = {  # fixtures, modules and folders of tests that start programs, or ask much
    "service", "services", "subprocess", "start_service", "manage", "caller_databases", "test_samples", "test_page",
    "test_moving_page", "test_operations_page", "replicas", "faults", "clients", "benchmarks", "properties",
}  # fmt: skip


# ---- golden files: with `--rewrite`, the tests that read them write them anew -----------------------------------


def pytest_configure(config):
    config.pluginmanager.register(_Order())
    gc.disable()  # while all tests are imported and collected
    settings.SECRET_KEY = secret_that_is_set() or "s" * 50  # as `serve` makes one; not for servers that tests start


def pytest_addoption(parser):
    parser.addoption("--rewrite", action="store_true", help="write the golden files anew; review the difference")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave out tests that need one database only, and mark the quick ones, before `-m` chooses."""
    items[:] = [item for item in items if not (_is_of_other_database(item) and item.get_closest_marker("one_database"))]
    items[:] = [item for item in items if _is_in_turn(item)]
    for item in items:
        if not (_is_of_other_database(item) or _takes_long(item) or {"long", "alone"} & {*item.keywords}):
            item.add_marker("quick")


def _is_of_other_database(item: pytest.Item) -> bool:
    """Say whether the test is run over another database than SQLite, by no choice of its own."""
    return any(_database(item, name) in DATABASES[1:] for name in ("db", "service"))


def _is_in_turn(item: pytest.Item) -> bool:
    """Say whether a case of many that run over one database each is run over this one: see `tests/sampling.py`."""
    turns = [mark.args[0] for mark in item.iter_markers("in_turn")]
    kind = _database(item, "db")
    return not turns or kind is None or DATABASES.index(kind) == sum(turns) % len(DATABASES)


def _database(item: pytest.Item, fixture: str) -> str | None:
    """Return the database that the fixture has for this test, unless the test chooses it itself."""
    chosen = {mark.args[0] for mark in item.iter_markers("parametrize")}
    values = item.callspec.params if hasattr(item, "callspec") and fixture not in chosen else {}
    kind = values.get(fixture)
    return kind if kind in DATABASES else None


def _takes_long(item: pytest.Item) -> bool:
    names = {item.path.parent.name, item.path.stem, *vars(item.module), *item.fixturenames}
    return not NOT_QUICK.isdisjoint(names)


class _Order:
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        """Begin with what takes long: at the end, those who work beside each other are done at the same time."""
        items[:] = dealt(
            items, lambda item: item.path, lambda item: item.get_closest_marker("long") is not None, processes()
        )

    def pytest_collection_finish(self):
        """Collect garbage as the service does: rarely, and without going through all tests each time."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()

    def pytest_unconfigure(self):
        """Collect what is left once: pytest does five times at the end, through all that there is."""
        gc.collect()
        gc.freeze()


@pytest.fixture
def rewrite(request) -> bool:
    return request.config.getoption("--rewrite", default=False)


@pytest.fixture
def golden(rewrite):
    """Holds a result against the golden file beside a case."""

    def compare(case: Path, actual: str) -> None:
        expected = case.with_suffix(".expected")
        if rewrite:
            expected.write_text(actual, encoding="utf-8", newline="")
        assert actual == expected.read_bytes().decode(), f"{expected.name} differs; see --rewrite"

    return compare


# ---- servers and databases, once a run -------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgresql_server():
    server = postgresql.start()
    if server is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("no PostgreSQL can be started here")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def database_urls(request, tmp_path_factory):
    """Makes the URL of a new database of a kind: an empty one, or a copy of another one that nobody uses."""

    numbers = count(1)  # what a fixture has set up once, it may set up again

    def make(kind: str, name: str, like: str | None = None) -> str:
        if kind == "sqlite":
            path = tmp_path_factory.mktemp(name) / "authz.sqlite3"
            if like is not None:
                shutil.copy(like.removeprefix("sqlite:///"), path)
            return f"sqlite:///{path}"
        server, name = request.getfixturevalue("postgresql_server"), f"{name}_{next(numbers)}"
        return server.create(name) if like is None else server.create(name, like.rpartition("/")[2])

    return make


@pytest.fixture(scope="session")
def migrated_urls(request, database_urls):
    """Makes the URL of a new database of a kind that is migrated and has no rows; the first one's work is for all."""
    originals: dict[str, str] = {}

    def make(kind: str, name: str) -> str:
        if kind not in originals:
            original = database_urls(kind, "migrated")
            with request.config.stash[blocking_manager_key].unblock():
                migrate(original)
            originals[kind] = original
        return database_urls(kind, name, originals[kind])

    return make


def migrate(url: str, *target: str) -> None:
    with connected(url):
        call_command("migrate", *target, verbosity=0)


@contextmanager
def connected(url: str) -> Iterator[None]:
    """Connect this process to a database, and afterwards to where it was."""
    usual = connections.settings["default"], connections["default"]
    connections.settings["default"] = connections.configure_settings({"default": _quick(url)})["default"]
    connections["default"] = connections.create_connection("default")
    try:
        yield
    finally:
        connections["default"].close()
        connections.settings["default"], connections["default"] = usual


@pytest.fixture(scope="session")
def _migrated(request, migrated_urls):
    """Connects the run to a kind of database."""
    blocker = request.config.stash[blocking_manager_key]
    settings: dict[str, dict] = {}
    wrappers: dict[str, object] = {}

    def connect(kind: str) -> None:
        if kind not in settings:
            config = _quick(migrated_urls(kind, "tests"))
            settings[kind] = connections.configure_settings({"default": config})["default"]
        connections.settings["default"] = settings[kind]
        fresh = kind not in wrappers
        if fresh:
            wrappers[kind] = connections.create_connection("default")
        connections["default"] = wrappers[kind]
        if fresh:
            _number_apart(wrappers[kind])

    with blocker.unblock():
        yield connect
        for wrapper in wrappers.values():
            wrapper.close()


def _number_apart(connection) -> None:
    """No row has the same number in both databases: a process serves one, and remembers rows by number."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT schemaname, sequencename FROM pg_sequences")
            for schema, sequence in cursor.fetchall():
                cursor.execute(f'ALTER SEQUENCE "{schema}"."{sequence}" RESTART 1000000')


def _quick(url: str) -> dict:
    """The settings that the service has, without waiting for the disk."""
    config = database_from_url(url)
    config["OPTIONS"] = dict(config["OPTIONS"])
    if "init_command" in config["OPTIONS"]:
        config["OPTIONS"]["init_command"] += "; PRAGMA synchronous = OFF"
    return config


# ---- for each test -----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _time_to_explain(monkeypatch):
    """Python collects the garbage of all tests before, which may take longer than an explanation is allowed to."""
    monkeypatch.setattr(explain, "MORE", 60.0)


@pytest.fixture(params=DATABASES)
def db(request, _migrated):
    """An empty database; the test's transactions really commit. The value is the kind of database."""
    blocker = request.config.stash[blocking_manager_key]
    _migrated(request.param)
    with blocker.unblock():
        yield request.param
        _empty(connections["default"])


def _empty(connection) -> None:
    """Delete all rows but the framework's own. Numbers are not given again, so what processes remember holds."""
    connection.close_if_unusable_or_obsolete()
    tables = set(connection.introspection.table_names()) - {
        "django_migrations", "django_content_type", "auth_permission",
    }  # fmt: skip
    statements = [f"DELETE FROM {table}" for table in sorted(tables)]
    if connection.vendor == "sqlite":
        wait_until_free(connection)
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            statements.insert(0, "PRAGMA defer_foreign_keys = ON")
        else:
            statements = ["; ".join(statements)]  # sent at once
        for statement in statements:
            cursor.execute(statement)


@dataclass(frozen=True)
class Api:
    """Requests of one environment's key, in this process."""

    environment: Environment
    key: str

    def request(self, method: str, path: str, json: object = None, **headers: str):
        client = DjangoClient(raise_request_exception=False)
        client.handler = _handler(client)
        return client.generic(
            method, whole(path), b"" if json is None else _json(json), "application/json",
            headers={"Authorization": f"Bearer {self.key}", **headers},
        )  # fmt: skip

    def get(self, path: str, **headers: str):
        return self.request("GET", path, **headers)

    def post(self, path: str, json: object = None, **headers: str):
        return self.request("POST", path, json, **headers)

    def delete(self, path: str, json: object = None, **headers: str):
        return self.request("DELETE", path, json, **headers)


_handlers: dict[str, object] = {}


def _handler(client: DjangoClient) -> object:
    """Return one that has loaded the middleware: each new client would load it anew, and read all static files."""
    if "api" not in _handlers:
        client.handler.load_middleware()  # before others have it: threads may ask at the same time
        _handlers["api"] = client.handler
    return _handlers["api"]


@setting_changed.connect
def _load_anew(**_: object) -> None:
    """The middleware reads settings when it is loaded."""
    _handlers.clear()


def whole(path: str) -> str:
    """The path of an endpoint: below /api, but for those of AuthZEN, and for what is whole already."""
    return path if path.startswith(("/access/", "/api/")) else f"/api{path}"


def _json(body: object) -> bytes:
    return body if isinstance(body, bytes) else orjson.dumps(body)


@pytest.fixture
def new_api(db):
    """Makes environments, each with a key. That it is used today counts as stored already: else the first request
    with it would start a thread, and that a connection, to store it.
    """

    def make(slug: str = "default") -> Api:
        environment = EnvironmentFactory(slug=slug)
        key = create_key(environment)[1]
        keys._noted[hash_of(key)] = int(time.time()) // keys._DAY
        return Api(environment, key)

    return make


@pytest.fixture
def api(new_api) -> Api:
    return new_api()


@pytest.fixture
def environment(api) -> Environment:
    return api.environment


# ---- the running server --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def services(migrated_urls, tmp_path_factory):
    """Starts `manage.py serve --dev` over a kind of database, once."""
    running: dict[str, Service] = {}

    def running_on(kind: str) -> Service:
        if kind not in running:
            url, folder = migrated_urls(kind, "service"), tmp_path_factory.mktemp("service")
            secret = "only for these tests " * 3
            running[kind] = start_service(folder, url, "--dev", "--workers", "1", SECRET_KEY=secret)
        return running[kind]

    yield running_on
    for each in running.values():
        each.stop()


@pytest.fixture(params=DATABASES)
def service(request, services) -> Service:
    """The service over each database; take a `fresh_client` from it."""
    return services(request.param)
