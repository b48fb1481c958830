"""`check_service` and `serve --check`: what a server would miss, and what to do about it."""

import os
import re
import secrets
import subprocess
import sys
import threading
import time
from datetime import timedelta
from io import StringIO
from pathlib import Path
from shutil import _ntuple_diskusage as usage
from unittest import mock

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError
from django.utils import timezone

from authz_project import checkup
from authz_project.checkup import (
    CheckFinding,
    disk_finding,
    keys_finding,
    log_finding,
    ok,
    rights_finding,
    settings_findings,
)
from authz_project.keys import create_key, keep_dev_key, revoke_key
from authz_project.management.commands import serve
from policy.replicas.standing import Standing
from tests.authz_project.test_ready import OF_LATER, migrations
from tests.authz_project.test_serve import SECRET
from tests.service import ROOT

WANTED = {
    "ALLOWED_HOSTS": "authz.example.org", "CSRF_TRUSTED_ORIGINS": "https://authz.example.org", "DECISION_LOG": "log",
}  # fmt: skip
LINE = re.compile(r"(ok|warn|fail) +([a-z ]+?)  +(\S.*)")


def manage(folder: Path, *words: str, url: str = "", **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROOT / "manage.py", *words], cwd=folder, capture_output=True, text=True, timeout=60,
        env=os.environ | {"DATABASE_URL": url, "SECRET_KEY": SECRET, **variables},
    )  # fmt: skip


def states(text: str) -> dict[str, str]:
    """What is said of each thing. It is one line of a thing, whatever there is to say."""
    found = [LINE.fullmatch(line) for line in text.splitlines()]
    assert all(found), text
    assert len({line[2] for line in found}) == len(found)
    return {line[2]: line[1] for line in found}


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("check_service",), ("serve", "--check")])
def test_all_is_well_where_all_is_there(tmp_path, database_urls, words):
    url = database_urls("sqlite", "checked")
    for prepare in (("migrate",), ("create_api_key",)):
        assert manage(tmp_path, *prepare, url=url).returncode == 0
    done = manage(tmp_path, *words, url=url, **WANTED)
    assert (done.returncode, done.stderr) == (0, "")
    assert states(done.stdout) == dict.fromkeys(
        ("settings", "secret", "database", "migrations", "clock", "connections", "keys", "disk", "rights",
         "decision log"), "ok",
    )  # fmt: skip
    assert not (tmp_path / "log").exists()


def test_what_fails_ends_it_with_1_and_what_to_do(tmp_path, database_urls):
    done = manage(tmp_path, "check_service", url=database_urls("postgresql", "checked"), SECRET_KEY="changeme")
    found = states(done.stdout)
    assert done.returncode == 1 and done.stderr == "error: 2 of 6 checks failed\n"
    assert (found["secret"], found["migrations"], found["settings"]) == ("fail", "fail", "warn")
    assert "missing" in done.stdout and "`migrate` brings" in done.stdout
    assert "keys" not in found  # of which there is no table


@pytest.mark.parametrize("url", ["", "postgres://authz:hidden@127.0.0.1:1/authz"])
def test_a_database_that_is_not_there_is_said_to_be_so(tmp_path, url):
    done = manage(tmp_path, "serve", "--check", url=url)
    assert (done.returncode, states(done.stdout)["database"]) == ((1, "fail") if url else (0, "warn"))
    assert "hidden" not in done.stdout + done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == []


def test_settings_that_cannot_be_meant_end_it(tmp_path):
    done = manage(tmp_path, "check_service", STATEMENT_TIMEOUT="soon")
    assert (done.returncode, done.stdout) == (1, "") and "STATEMENT_TIMEOUT must be" in done.stderr


@pytest.fixture
def kept_close(db, settings):
    """The database of this run, with its files their owner's alone, and a secret as `serve` makes it."""
    settings.SECRET_KEY = secrets.token_urlsafe(48)
    if (path := checkup.database_file()) is not None:
        for each in path.parent.glob(f"{path.name}*"):
            each.chmod(0o600)
    return db


def test_serve_only_looks(kept_close):
    said = StringIO()
    with mock.patch.object(serve, "run_server") as run, mock.patch.object(serve, "alone") as alone:
        call_command("serve", "--check", stdout=said)
    assert not run.called and not alone.called
    assert states(said.getvalue())["migrations"] == "ok"


def test_what_is_there_is_told_on_both_databases(kept_close):
    said = StringIO()
    call_command("check_service", stdout=said)
    found = states(said.getvalue())
    assert [found[name] for name in ("database", "migrations", "clock", "connections")] == ["ok"] * 4
    assert {"postgresql": "PostgreSQL 1", "sqlite": "SQLite 3."}[kept_close] in said.getvalue()


# ---- the database ---------------------------------------------------------------------------------------------------


def found_of_database(workers: int = 2, threads: int = 4) -> dict[str, CheckFinding]:
    return {each.name: each for each in checkup.database_findings(workers, threads)}


def test_a_database_of_a_later_version_is_told(db):
    with migrations(OF_LATER, back="DELETE FROM django_migrations WHERE name = '9999_later'"):
        found = found_of_database()["migrations"]
    assert found.state == "fail" and "facts.9999_later" in found.text


def test_a_database_that_hangs_is_told(db):
    go_on, found_late = threading.Event(), ok("migrations", "late")
    with (
        mock.patch.object(checkup, "WITHIN", 0.2),
        mock.patch.object(checkup, "migrations_finding", side_effect=lambda: (go_on.wait(60), found_late)[1]),
    ):
        started = time.monotonic()
        found = [*checkup.database_findings(2, 4)]
        assert time.monotonic() - started < 30
    go_on.set()
    assert [each.state for each in found] == ["ok", "fail"]
    assert "has not answered" in found[1].text


def test_a_database_that_fails_is_told_on_one_line(db):
    with mock.patch.object(checkup, "migrations_finding", side_effect=OperationalError("one\nand two")):
        assert "one and two; DATABASE_URL" in found_of_database()["database"].text


@pytest.mark.parametrize(("ahead", "state"), [(0, "ok"), (-5, "warn"), (5, "warn"), (3600, "fail"), (-3600, "fail")])
def test_clocks_that_differ_are_told(db, ahead, state):
    with mock.patch.object(checkup.time, "time", side_effect=lambda real=time.time: real() + ahead):
        assert found_of_database()["clock"].state == ("ok" if db == "sqlite" else state)


@pytest.mark.parametrize(
    ("differs", "state", "told"),
    [
        ({}, "ok", "in use, 0.4 seconds behind"),
        ({"is_used": False, "reason": "gone"}, "warn", "gone"),
        ({"is_used": False, "reason": "of another database", "is_stranger": True}, "fail", "of another database"),
    ],
)
def test_each_replica_is_told_of(db, differs, state, told):
    used = Standing("db2:5432", True, "", 7, 0.4, 0, 0, 0)
    with mock.patch.object(checkup, "looked_at", return_value=[used, used._replace(name="db3:5432", **differs)]):
        found = found_of_database()
    assert found["replica db2:5432"].state == "ok"
    assert found["replica db3:5432"].state == state and told in found["replica db3:5432"].text


def test_more_connections_than_there_are_is_told(db):
    assert found_of_database(1, 2)["connections"].state == "ok"
    assert found_of_database(100, 100)["connections"].state == ("ok" if db == "sqlite" else "warn")


# ---- keys -----------------------------------------------------------------------------------------------------------


def test_keys_that_have_ended_or_will_are_told(environment):
    create_key(environment, "in use")
    assert keys_finding() == ("ok", "keys", "2 active")
    now = timezone.now()
    ended, _ = create_key(environment, "old", now - timedelta(days=1))
    soon, _ = create_key(environment, "soon", now + timedelta(days=3))
    create_key(environment, "later", now + timedelta(days=300))
    revoked, _ = create_key(environment, "revoked", now - timedelta(days=1))
    revoke_key(revoked)
    found = keys_finding()
    assert found.state == "warn"
    assert f"1 ({ended.prefix}) ended" in found.text and f"1 ({soon.prefix}) ends within 14 days" in found.text
    assert revoked.prefix not in found.text


def test_many_keys_are_not_all_named(environment):
    for _ in range(5):
        create_key(environment, "", timezone.now() - timedelta(days=1))
    found = keys_finding().text
    assert "5 (" in found and found.count("e_default_") == 3


def test_no_key_at_all_and_the_one_that_everybody_knows_are_told(db, environment):
    environment.api_keys.all().delete()
    assert "none opens anything" in keys_finding().text
    keep_dev_key(environment)
    assert "well-known key" in keys_finding().text


# ---- settings and files ---------------------------------------------------------------------------------------------


def test_settings_without_effect_are_told(settings):
    settings.DECISION_LOG, settings.DECISION_LOG_DENIED = "", True
    found, _ = settings_findings()
    assert found.state == "warn" and "DECISION_LOG_…" in found.text


@pytest.mark.parametrize(("free", "state"), [(5 << 30, "ok"), (500 << 20, "warn"), (5 << 20, "fail")])
def test_a_disk_that_fills_is_told(tmp_path, free, state):
    with mock.patch.object(checkup.shutil, "disk_usage", return_value=usage(1 << 40, 0, free)):
        found = disk_finding({"database": tmp_path, "decision log": tmp_path})
    assert found.state == state and ("make room" in found.text) == (state != "ok")


@pytest.mark.parametrize(("mode", "state"), [(0o600, "ok"), (0o640, "warn"), (0o604, "fail")])
@pytest.mark.parametrize("name", ["authz.sqlite3", "authz.sqlite3-wal", "authz.sqlite3.secret"])
def test_files_that_others_may_open_are_told(tmp_path, name, mode, state):
    tmp_path.chmod(0o700)
    (tmp_path / name).touch()
    (tmp_path / name).chmod(mode)
    found = rights_finding(tmp_path / "authz.sqlite3")
    assert found.state == state and (f"chmod 600 {tmp_path / name}" in found.text) == (state != "ok")


def test_a_folder_that_everybody_may_write_is_told(tmp_path):
    tmp_path.chmod(0o777)
    assert rights_finding(tmp_path / "authz.sqlite3").state == "warn"
    tmp_path.chmod(0o1777)
    assert rights_finding(tmp_path / "authz.sqlite3").state == "ok"


def test_files_of_somebody_else_are_told(tmp_path):
    path = tmp_path / "authz.sqlite3"
    path.touch(0o600)
    with mock.patch.object(checkup.os, "access", return_value=False):
        found = rights_finding(path)
    assert found.state == "fail" and "belongs to somebody else" in found.text and "SQLite makes files" in found.text


def test_a_decision_log_that_cannot_be_written_is_told(tmp_path):
    path = tmp_path / "decisions.jsonl"
    assert log_finding(path).state == "ok" and not path.exists()
    path.touch(0o600)
    assert log_finding(path).state == "ok"
    path.chmod(0o644)
    assert log_finding(path).state == "warn"
    with mock.patch.object(checkup.os, "access", return_value=False):
        assert log_finding(path).state == "fail"
    assert log_finding(tmp_path / "nowhere" / "decisions.jsonl").state == "fail"
    assert log_finding(tmp_path).state == "fail"


def test_what_fails_raises_where_a_program_calls_it(kept_close, settings):
    settings.SECRET_KEY = "guess"
    with pytest.raises(CommandError, match="1 of"):
        call_command("check_service", stdout=StringIO())
