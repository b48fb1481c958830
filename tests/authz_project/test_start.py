"""How `manage.py` begins: files for their owner only, servers that start together, and clear words for nonsense."""

import os
import runpy
import sqlite3
import subprocess
import sys
from argparse import ArgumentTypeError
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from authz_project import settings
from authz_project.management.commands.serve import few, port_number, refuse_outsiders
from tests.authz_project.test_serve import SECRET, refusal, sqlite_url  # noqa: F401  a fixture
from tests.postgresql import free_port
from tests.sampling import some
from tests.service import ROOT, start_service


def test_files_are_their_owners(tmp_path):
    """Of the command that makes the database, of a server that works on it, and of one that prints facts."""
    url, before = f"sqlite:///{tmp_path / 'authz.sqlite3'}", os.umask(0o022)
    try:
        service = start_service(tmp_path, url, "--dev", "--workers", "1")
        client = service.client()
        assert client.post("/facts", {"predicate": "p", "args": [{"type": "T", "id": "x"}]}).status_code == 200
        manage(tmp_path, url, "dump_facts", "facts.jsonl")
    finally:
        os.umask(before)
    made = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if not path.name.endswith(".log")}
    service.stop()
    assert {"authz.sqlite3", "authz.sqlite3-wal", "authz.sqlite3-shm", "facts.jsonl"} <= set(made)
    assert set(made.values()) == {0o600}, made


def manage(folder, url: str, *arguments: str, **variables: str) -> str:
    return subprocess.run(
        [sys.executable, ROOT / "manage.py", *arguments], cwd=folder, check=True, capture_output=True, text=True,
        env=os.environ | {"DATABASE_URL": url, "PYTHONPATH": str(ROOT)} | variables, timeout=60,
    ).stdout  # fmt: skip


def test_a_database_that_was_open_to_everybody_is_closed(tmp_path):
    path = tmp_path / "authz.sqlite3"
    sqlite3.connect(path).close()
    path.touch()
    path.chmod(0o644)
    start_service(tmp_path, f"sqlite:///{path}", "--workers", "1").stop()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", some(("sqlite", "postgresql"), 2))
def test_servers_may_start_together(tmp_path, database_urls, kind):
    """On a database in which nothing is yet."""
    url = database_urls(kind, "together")

    def start(_):
        return start_service(tmp_path, url, "--workers", "1", SECRET_KEY=SECRET)

    with ThreadPoolExecutor(2) as pool:
        services = list(pool.map(start, range(2)))
    for service in services:
        assert service.stop() == 0
    assert sum("First API key" in service.log.read_text() for service in services) == 1


NONSENSE = [
    ("STATEMENT_TIMEOUT", "abc"), ("STATEMENT_TIMEOUT", "-1"), ("WRITE_TIMEOUT", "nan"), ("ANSWER_CACHE", "10MB"),
    ("ANSWER_CACHE", "9" * 5000), ("HISTORY_DAYS", "1.5"), ("LOG_LEVEL", "loud"),
    ("PUBLIC_URL", "authz.example.org"), ("DATABASE_URL", "postgres://u:p@h:port/x"),
    ("DATABASE_URL", "sqlite:////no/such/folder/x.sqlite3"), ("DATABASE_URL", "sqlite:///"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), NONSENSE)
def test_a_setting_with_nonsense_is_named(tmp_path, monkeypatch, name, value):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    with pytest.raises(ImproperlyConfigured, match=name):
        runpy.run_path(settings.__file__)


def test_settings_are_taken_as_they_are(tmp_path, monkeypatch):
    given = {
        "SECRET_KEY": "$HOME" + 40 * "x", "OIDC_RP_CLIENT_SECRET": "$HOME",
        "ALLOWED_HOSTS": "authz.example.org, [::1],",
        "PUBLIC_URL": "https://authz.example.org/",
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    found = runpy.run_path(settings.__file__)
    assert [found[name] for name in given] == [
        given["SECRET_KEY"], "$HOME", ["authz.example.org", "[::1]"],
        "https://authz.example.org",
    ]  # fmt: skip


def test_nonsense_in_the_settings_is_one_line(tmp_path):
    told = refusal(tmp_path, STATEMENT_TIMEOUT="abc")
    assert "STATEMENT_TIMEOUT must be" in told and len(told.strip().splitlines()) == 1, told


@pytest.mark.parametrize(
    "options", [("--port", "99999"), ("--workers", "0"), ("--host", "no such host"), ("--dev", "--host", "0.0.0.0")]
)
def test_an_option_with_nonsense_is_said_to_be_so(tmp_path, options):
    assert options[-1] in refusal(tmp_path, *options)


@pytest.mark.parametrize("text", ["0", "-1", "x", "65536", "9" * 5000, "8080.0", "", "00000165536999", "0" * 5000])
def test_what_is_no_port(text):
    with pytest.raises(ArgumentTypeError):
        port_number(text)


def test_zeros_before_a_number_change_nothing():
    assert (port_number("0" * 5000 + "8080"), few("0000000012")) == (8080, 12)
    with pytest.raises(ArgumentTypeError):
        few("000001999999")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_development_is_for_this_machine_alone(host):
    with pytest.raises(CommandError, match="--dev"):
        refuse_outsiders(host)
    for near in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        refuse_outsiders(near)


def test_a_database_that_cannot_be_reached_is_one_line(tmp_path):
    url = "postgres://nobody:hush@127.0.0.1:1/none"
    told = refusal(tmp_path, "--port", str(free_port()), DATABASE_URL=url, SECRET_KEY=SECRET)
    assert "cannot connect to the database" in told and "hush" not in told and len(told.strip().splitlines()) == 1
    done = subprocess.run(
        [sys.executable, ROOT / "manage.py", "api_keys", "list"], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"DATABASE_URL": url, "SECRET_KEY": SECRET}, timeout=60,
    )  # fmt: skip
    assert done.stderr.startswith("error: Cannot use the database") and len(done.stderr.strip().splitlines()) == 1


def test_keys_of_test_environments_are_good_in_development_only(tmp_path, sqlite_url):  # noqa: F811
    service = start_service(tmp_path, sqlite_url, "--dev", "--workers", "1")
    key = service.fresh_client().key
    assert service.client(key).get("/facts").status_code == 200
    service.stop()
    service = start_service(tmp_path, sqlite_url, "--workers", "1")
    assert service.client(key).get("/facts").status_code == 401
    service.stop()
    service = start_service(tmp_path, sqlite_url, "--dev", "--workers", "1")
    assert service.client(key).get("/facts").status_code == 200
    service.stop()


def test_names_of_test_environments_are_theirs(tmp_path, sqlite_url):  # noqa: F811
    create = "api_keys", "create", "--create-environment", "--environment"
    with pytest.raises(subprocess.CalledProcessError):
        manage(tmp_path, sqlite_url, *create, "testenvironment123")
    manage(tmp_path, sqlite_url, *create, "testenvironment")
