"""`check`: what a server would miss, and what to do about it."""

import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from shutil import _ntuple_diskusage as usage
from unittest import mock

import pytest
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import OperationalError, connection
from django.utils import timezone

from authz_project import system_checks
from authz_project.keys import create_key, keep_dev_key, revoke_key
from authz_project.management.commands import serve
from authz_project.system_checks import (
    connection_findings,
    disk_findings,
    key_findings,
    log_findings,
    permission_findings,
)
from policy.replicas.reading import ReplicaStatus
from tests.authz_project.test_ready import OF_LATER, migrations
from tests.authz_project.test_serve import SECRET
from tests.service import ROOT

WANTED = {
    "ALLOWED_HOSTS": "authz.example.org", "PUBLIC_URL": "https://authz.example.org", "DECISION_LOG": "log",
}  # fmt: skip
ALL = ("check", "--deploy", "--tag", "service")


def manage(folder: Path, *words: str, url: str = "", **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROOT / "manage.py", *words], cwd=folder, capture_output=True, text=True, timeout=60,
        env=os.environ | {"DATABASE_URL": url, "SECRET_KEY": SECRET, **variables},
    )  # fmt: skip


def ids(text: str) -> list[str]:
    return re.findall(r"authz\.([WE]\d+)", text)


def found(messages: Iterable[CheckMessage]) -> list[str]:
    """The ids of what a check finds. Each says what is the case and what to do, and its level is that of its id."""
    messages = list(messages)
    for each in messages:
        assert each.msg.endswith(".") and each.hint and each.hint.endswith(".")
        assert each.id.startswith("authz.E" if each.is_serious() else "authz.W")
    return [each.id.removeprefix("authz.") for each in messages]


def text_of(messages: Iterable[CheckMessage]) -> str:
    return "\n".join(f"{each.msg} {each.hint}" for each in messages)


# ---- the command ----------------------------------------------------------------------------------------------------


def test_all_is_well_where_all_is_there(tmp_path, database_urls):
    url = database_urls("sqlite", "checked")
    for prepare in (("migrate",), ("api_keys", "create")):
        assert manage(tmp_path, *prepare, url=url).returncode == 0
    done = manage(tmp_path, *ALL, url=url, **WANTED)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no issues" in done.stdout
    assert not (tmp_path / "log").exists()


def test_errors_end_it_with_1_and_hints(tmp_path, database_urls):
    done = manage(tmp_path, *ALL, url=database_urls("postgresql", "checked"), SECRET_KEY="changeme")
    assert done.returncode == 1 and ids(done.stderr) == ["E001", "E005", "W001", "W001", "W001"]  # no table of keys
    assert "HINT: Run `migrate` or `serve`." in done.stderr


@pytest.mark.parametrize("url", ["", "postgres://authz:hidden@127.0.0.1:1/authz"])
def test_a_database_that_is_not_there_is_told(tmp_path, url):
    done = manage(tmp_path, *ALL, url=url, **WANTED)
    assert (done.returncode, ids(done.stderr)) == ((1, ["E003"]) if url else (0, ["W003"]))
    assert "hidden" not in done.stdout + done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == []


def test_without_deploy_it_does_not_connect(tmp_path):
    done = manage(tmp_path, "check", url="postgres://authz:hidden@127.0.0.1:1/authz")
    assert (done.returncode, done.stderr) == (0, "")


def test_invalid_settings_end_it(tmp_path):
    done = manage(tmp_path, "check", STATEMENT_TIMEOUT="soon")
    assert (done.returncode, done.stdout) == (1, "") and "STATEMENT_TIMEOUT must be" in done.stderr


@pytest.fixture
def kept_close(db, settings):
    """The database of this run, with its files their owner's alone, and a secret as `serve` makes it."""
    settings.SECRET_KEY = secrets.token_urlsafe(48)
    if (path := system_checks.database_file()) is not None:
        for each in path.parent.glob(f"{path.name}*"):
            each.chmod(0o600)
    return db


def test_errors_raise_where_a_program_calls_it(kept_close, settings):
    settings.SECRET_KEY = "guess"
    with pytest.raises(SystemCheckError, match=r"authz\.E001"):
        call_command(*ALL, stdout=StringIO(), stderr=StringIO())


def test_every_check_is_called_and_every_message_has_an_id_of_its_own():
    """Ids without gaps, each in one check, and each provoked here or, those of spaces, where spaces are tested."""
    source, here = Path(system_checks.__file__).read_text(), Path(__file__)
    tests = here.read_text() + here.with_name("test_spaces.py").read_text()
    checks = re.findall(r"^def (\w+)\(.*\) -> Found:$", source, re.MULTILINE)
    assert len(checks) > 10
    assert [name for name in checks if len(re.findall(rf"\b{name}\(", source)) == 1] == []
    told = [name for each in source.split("\ndef ") for name in sorted(set(re.findall(r'id="authz\.(\w+)"', each)))]
    assert sorted(told) == [
        f"{letter}{number:03}" for letter in "EW" for number in range(1, sum(name[0] == letter for name in told) + 1)
    ]
    assert [name for name in told if f'"{name}"' not in tests and f".{name}" not in tests] == []


# ---- the database ---------------------------------------------------------------------------------------------------


def test_a_good_database_has_no_findings(kept_close, environment):
    create_key(environment, "in use")
    assert found(system_checks.database_findings()) == []


def test_a_database_of_a_later_version_is_told(db):
    with migrations(OF_LATER, back="DELETE FROM django_migrations WHERE name = '9999_later'"):
        told = list(system_checks.database_findings())
    assert found(told) == ["E004"] and "facts.9999_later" in text_of(told)


def test_a_database_that_hangs_is_told(db):
    go_on = threading.Event()
    with (
        mock.patch.object(system_checks, "WITHIN", 0.2),
        mock.patch.object(system_checks, "migration_findings", side_effect=lambda: (go_on.wait(60), [])[1]),
    ):
        started = time.monotonic()
        told = [*system_checks.database_findings()]
        assert time.monotonic() - started < 30
    go_on.set()
    assert found(told) == ["E002"]


def test_a_database_that_fails_is_told_on_one_line(db):
    with mock.patch.object(system_checks, "migration_findings", side_effect=OperationalError("one\nand two")):
        told = list(system_checks.database_findings())
    assert [each.id for each in told] == ["authz.E003"] and "one and two" in text_of(told)


@pytest.mark.parametrize(
    ("ahead", "ids"), [(0, []), (-5, ["W004"]), (5, ["W004"]), (3600, ["E006"]), (-3600, ["E006"])]
)
def test_clocks_that_differ_are_told(db, ahead, ids):
    with mock.patch.object(system_checks.time, "time", side_effect=lambda real=time.time: real() + ahead):
        assert found(system_checks.clock_findings()) == ([] if db == "sqlite" else ids)


@pytest.mark.parametrize(
    ("differs", "ids"),
    [
        ({}, []),
        ({"is_used": False, "reason": "gone"}, ["W006"]),
        ({"is_used": False, "reason": "gone", "is_stranger": True}, ["E007"]),
    ],
)
def test_each_replica_is_told_of(db, differs, ids):
    used = ReplicaStatus("db2:5432", True, "", 7, 0.4, 0, 0, 0)
    with mock.patch.object(system_checks, "looked_at", return_value=[used, used._replace(name="db3:5432", **differs)]):
        told = list(system_checks.replica_findings())
    assert found(told) == ids
    assert ("Replica db3:5432 is not used: gone." in text_of(told)) == bool(ids)


def test_more_connections_than_there_are_is_told(db):
    assert found(connection_findings(1, 2)) == []
    assert found(connection_findings(100, 100)) == ([] if db == "sqlite" else ["W005"])


def test_a_pooler_whose_connections_lack_parameters_is_told(db, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "PARAMETERS", {"jit": "never"})
    assert found(connection_findings(100, 100)) == ([] if db == "sqlite" else ["E013"])


def test_serve_warns_of_more_connections_than_there_are(db, environment):
    said = StringIO()
    with mock.patch.object(serve, "connections"):
        serve.Command(stdout=said).introduce("http://127.0.0.1:8080", 100, 100, False)
    assert ("opens up to 30201 of" in said.getvalue()) == (db == "postgresql")


def test_serve_warns_of_a_database_of_a_later_version(environment):
    said = StringIO()
    later = migrations(OF_LATER, back="DELETE FROM django_migrations WHERE name = '9999_later'")
    with later, mock.patch.object(serve, "connections"):
        serve.Command(stdout=said).introduce("http://127.0.0.1:8080", 1, 2, False)
    assert "The database was migrated by a later version" in said.getvalue()


# ---- API keys -------------------------------------------------------------------------------------------------------


def test_keys_that_have_expired_or_will_are_told(environment):
    create_key(environment, "in use")
    assert found(key_findings()) == []
    now = timezone.now()
    ended, _ = create_key(environment, "old", now - timedelta(days=1))
    soon, _ = create_key(environment, "soon", now + timedelta(days=3))
    create_key(environment, "later", now + timedelta(days=300))
    revoked, _ = create_key(environment, "revoked", now - timedelta(days=1))
    revoke_key(revoked)
    told = list(key_findings())
    assert found(told) == ["W008", "W009"]
    assert f"Expired API keys: 1 ({ended.prefix})." in text_of(told)
    assert f"expire within 14 days: 1 ({soon.prefix})." in text_of(told)


def test_many_keys_are_not_all_named(environment):
    for _ in range(5):
        create_key(environment, "", timezone.now() - timedelta(days=1))
    told = text_of(key_findings())
    assert "5 (" in told and told.count("e_default_") == 3


def test_no_key_at_all_and_the_one_that_everybody_knows_are_told(db, environment):
    environment.api_keys.all().delete()
    assert found(key_findings()) == ["W007"]
    keep_dev_key(environment)
    assert found(key_findings()) == ["W007", "W010"]


# ---- settings and files ---------------------------------------------------------------------------------------------


def test_settings_without_effect_are_told(settings):
    assert found(system_checks.decision_log_settings()) == []
    settings.DECISION_LOG, settings.DECISION_LOG_DENIED = "", True
    assert found(system_checks.decision_log_settings()) == ["W002"]


def test_a_secret_that_can_be_guessed_is_told(settings):
    settings.SECRET_KEY = "guess"
    assert found(system_checks.secret()) == ["E001"]


@pytest.mark.parametrize(("free", "ids"), [(5 << 30, []), (500 << 20, ["W011"] * 2), (5 << 20, ["E008"] * 2)])
def test_a_disk_that_fills_is_told(tmp_path, free, ids):
    with mock.patch.object(system_checks.shutil, "disk_usage", return_value=usage(1 << 40, 0, free)):
        assert found(disk_findings({"database": tmp_path, "decision log": tmp_path})) == ids
        assert found(disk_findings({}, system_checks.LARGE)) == ["W012"]


@pytest.mark.parametrize(("mode", "ids"), [(0o600, []), (0o640, ["W013"]), (0o604, ["E009"])])
@pytest.mark.parametrize("name", ["authz.sqlite3", "authz.sqlite3-wal", "authz.sqlite3.secret"])
def test_files_that_others_may_open_are_told(tmp_path, name, mode, ids):
    tmp_path.chmod(0o700)
    (tmp_path / name).touch()
    (tmp_path / name).chmod(mode)
    told = list(permission_findings(tmp_path / "authz.sqlite3"))
    assert found(told) == ids and (f"chmod 600 {tmp_path / name}" in text_of(told)) == bool(ids)


def test_a_folder_that_everybody_may_write_is_told(tmp_path):
    tmp_path.chmod(0o777)
    assert found(permission_findings(tmp_path / "authz.sqlite3")) == ["W014"]
    tmp_path.chmod(0o1777)
    assert found(permission_findings(tmp_path / "authz.sqlite3")) == []


def test_files_of_somebody_else_are_told(tmp_path):
    path = tmp_path / "authz.sqlite3"
    path.touch(0o600)
    with mock.patch.object(system_checks.os, "access", return_value=False):
        assert found(permission_findings(path)) == ["E010", "E011"]


def test_a_decision_log_that_cannot_be_written_is_told(tmp_path):
    path = tmp_path / "decisions.jsonl"
    assert found(log_findings(path)) == [] and not path.exists()
    path.touch(0o600)
    assert found(log_findings(path)) == []
    path.chmod(0o644)
    assert found(log_findings(path)) == ["W015"]
    with mock.patch.object(system_checks.os, "access", return_value=False):
        assert found(log_findings(path)) == ["E012"]
    assert found(log_findings(tmp_path / "nowhere" / "decisions.jsonl")) == ["E012"]
    assert found(log_findings(tmp_path)) == ["E012"]
