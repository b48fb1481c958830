"""Run the example project by itself: its tests, on both databases, and what it costs to start."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import django
import pytest

from tests.conversation import play
from tests.postgresql import free_port
from tests.service import ROOT, Service, start_service
from tests.test_wire_cases import CASES

WIKI = ROOT / "authz_project" / "examples" / "wiki"
HEAVY = {"granian", "whitenoise", "prometheus_client", "sqlglot", "environ", "opentelemetry", "orjson", "ply"}


def surroundings(**variables: str) -> dict[str, str]:
    """Return the environment of a program of the example."""
    paths = os.pathsep.join((str(WIKI), str(ROOT)))
    return {**os.environ, "PYTHONPATH": paths, "DJANGO_SETTINGS_MODULE": "wiki.settings", **variables}


def run(*arguments: str, python: str = sys.executable, **variables: str) -> str:
    command, env = [python, *arguments], surroundings(**variables)
    done = subprocess.run(command, cwd=WIKI, text=True, capture_output=True, timeout=600, env=env)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


def pass_tests(url: str, **options: str) -> None:
    settings = {"DJANGO_SETTINGS_MODULE": "tests.embedded.settings", "WIKI_DATABASE_URL": url}
    assert "OK" in run("manage.py", "test", "tests.embedded.wiki", "--noinput", **settings, **options)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_example_passes_its_tests(kind, database_urls):
    pass_tests("sqlite://:memory:" if kind == "sqlite" else database_urls(kind, "wiki"))


def test_the_other_django_runs_the_example_and_the_service(database_urls, migrated_urls, tmp_path):
    """In an environment of its own, with the dependencies of the package and the Django that this one has not."""
    release, python = ("6.0", newer_python()) if django.VERSION < (6,) else ("5.2", sys.executable)
    subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, *needed, f"django=={release}.*"], check=True)
    assert run("-m", "django", "--version", python=python).startswith(release)
    pass_tests("sqlite://:memory:", python=python)
    pass_tests(database_urls("postgresql", "wiki"), python=python)
    service = start_service(tmp_path, migrated_urls("sqlite", "wire"), "--dev", python=python)
    try:
        for case in CASES:
            play(service, case)
    finally:
        service.stop()


def newer_python() -> str:
    """Return a Python that Django 6.0 runs with."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [f"python3.{minor}" for minor in (12, 13, 14)]
    installed = [*pyenv.glob("3.1[2-4].*/bin/python"), *map(shutil.which, names)]
    for python in filter(None, installed):
        if subprocess.run([python, "-c", "import sqlite3, ssl"], capture_output=True).returncode == 0:
            return str(python)
    raise AssertionError("install Python 3.12 or later beside this one: Django 6.0 needs it")


@pytest.mark.one_database
def test_checks_and_new_migrations_need_no_database_and_there_are_none_of_the_engine():
    away = f"postgres://nobody@127.0.0.1:{free_port()}/none"
    assert "authz.W112" in run("manage.py", "check", WIKI_DATABASE_URL=away)
    assert "No changes" in run("manage.py", "makemigrations", "--check", "--dry-run", WIKI_DATABASE_URL=away)


MIGRATE = """
import django
from django.core.management import call_command as call
django.setup()
for only in (["auth"], [], ["authz_policy", "0009"], [], ["authz_localsql", "zero"], ["authz_policy", "zero"]):
    print("migrate", *only)
    call("migrate", *only, skip_checks=False)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_part_of_the_migrations(kind, database_urls):
    """An upgrade's `migrate` finds tables of an earlier release; others are for some apps only."""
    said = run("-c", MIGRATE, WIKI_DATABASE_URL=database_urls(kind, "wiki"))
    _, of_an_app, of_all, back, again, *_ = said.split("migrate")
    assert "is active" not in of_an_app and "policy version 1 is active" in of_all
    assert "Unapplying authz_policy.0010" in back and "Applying authz_policy.0010" in again


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_example_passes_its_tests_with_a_server_instead(kind, database_urls, services):
    url = "sqlite://:memory:" if kind == "sqlite" else database_urls(kind, "wiki")
    settings = with_server(services(kind)) | {"WIKI_DATABASE_URL": url}
    tests = ("tests.embedded.wiki", "tests.embedded.wiki_remote")
    assert "OK" in run("manage.py", "test", *tests, "--noinput", **settings)


@pytest.mark.one_database
def test_the_setting_alone_switches_and_a_server_needs_one_table(database_urls, services):
    url, tables = database_urls("sqlite", "wiki"), "SELECT name FROM sqlite_master WHERE name LIKE 'authz%'"
    remote = with_server(services("sqlite")) | {"WIKI_DATABASE_URL": url}
    run("manage.py", "migrate", **remote)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        assert database.execute(tables).fetchall() == [("authz_outbox",)]
    assert "no issues" in run("manage.py", "check", "--database", "default", **remote)
    assert "No changes" in run("manage.py", "makemigrations", "--check", "--dry-run", **remote)
    run("manage.py", "migrate", WIKI_DATABASE_URL=url)
    ask = "from localsql.django import actions; print(actions(('User', 1), ('Document', 1)))"
    for settings in ({"WIKI_DATABASE_URL": url}, remote):
        assert "set()" in run("manage.py", "shell", "-c", ask, **settings)


def with_server(service: Service) -> dict[str, str]:
    client = service.fresh_client()
    source = (WIKI / "policy.polar").read_text()
    assert client.post("/policy", {"src": source, "filename": "policy.polar"}).status_code == 200
    return {
        "DJANGO_SETTINGS_MODULE": "tests.embedded.remote_settings", "AUTHZ_URL": client.origin, "AUTHZ_KEY": client.key,
    }  # fmt: skip


START = """
import sys, json
import django.conf, wiki.settings as settings
if "without" in sys.argv:
    settings.INSTALLED_APPS = [a for a in settings.INSTALLED_APPS if a not in ("policy", "facts", "checks", "localsql")]
    sys.modules["documents.authz"] = sys.modules["documents.admin"] = sys
import django
django.setup()
print(json.dumps(sorted(sys.modules)))
"""


def test_a_project_starts_with_few_more_modules():
    bare, with_engine = (set(json.loads(run("-c", START, *more))) for more in (("without",), ()))
    added = with_engine - bare - {"documents.authz", "documents.admin"}
    assert {each.partition(".")[0] for each in added}.isdisjoint(HEAVY)
    assert len(added) <= 30, sorted(added)
    assert not [each for each in added if each.startswith(("checks.engine", "checks.asking", "policy.language"))]


def test_what_protects_the_example_is_short():
    lines = (Path(WIKI) / "documents" / "authz.py").read_text().splitlines()
    settings = (Path(WIKI) / "wiki" / "settings.py").read_text().partition("# ---- what protects it\n")[2].splitlines()
    words = ("permitted", "requires", "authz", "facts", "who(")
    uses = [
        line
        for path in (WIKI / "documents").rglob("*")
        if path.suffix in (".py", ".html") and path.name != "authz.py"
        for line in path.read_text().splitlines()
        if any(word in line.lower() for word in words)
    ]
    assert len(lines) + len(settings) + len(uses) < 60
