"""What `manage.py` says where a command cannot begin, or cannot go on: one line, and an exit status."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from django.db import InterfaceError, OperationalError, ProgrammingError

from authz_project.command_line import main
from tests.service import ROOT

COMMANDS = [("load_facts", "-"), ("load_policy", "-"), ("api_keys", "list")]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_database_that_is_not_prepared_is_said_to_be_so(database_urls, tmp_path, kind):
    url = database_urls(kind, "unprepared")
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, ROOT / "manage.py", *command], cwd=tmp_path, input="", capture_output=True, text=True,
            env=os.environ | {"DATABASE_URL": url, "SECRET_KEY": "a secret of more than 32 characters"}, timeout=60,
        )  # fmt: skip
        assert done.returncode != 0
        assert "manage.py migrate" in done.stderr and "Traceback" not in done.stderr


def manage(folder, url: str, *command: str, **options) -> subprocess.CompletedProcess:
    variables = os.environ | {"DATABASE_URL": url, "SECRET_KEY": "a secret of more than 32 characters"}
    return subprocess.run(
        [sys.executable, ROOT / "manage.py", *command], cwd=folder, env=variables, timeout=60, **options
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgres://authz:hidden@127.0.0.1:1/authz", "Connection refused"),
        ("sqlite:////nonexistent/authz.sqlite3", "folder `/nonexistent` does not exist"),
        (f"sqlite:///{__file__}", "file is not a database"),
    ],
)
def test_a_database_that_cannot_be_used_is_said_in_one_line(tmp_path, url, reason):
    done = manage(tmp_path, url, "show_policy", "--history", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert reason in done.stderr and "DATABASE_URL" in done.stderr
    assert "hidden" not in done.stderr


@pytest.mark.parametrize(("reads", "status"), [(True, 141), (False, 1)])
def test_output_that_nobody_takes_ends_a_command_quietly(tmp_path, reads, status):
    """As with `| head`, and with a disk that is full."""
    command = [sys.executable, str(ROOT / "manage.py"), "help", "--commands"]
    if reads:
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open("/dev/full", os.O_WRONLY)
    try:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60,
            env=os.environ | {"DATABASE_URL": "", "SECRET_KEY": ""},
        )  # fmt: skip
    finally:
        os.close(writer)
    assert done.returncode == status
    assert done.stderr == ("" if reads else "error: no space left on device\n")


def test_facts_are_not_written_over_the_database(tmp_path):
    url = "sqlite:///x.sqlite3"
    assert manage(tmp_path, url, "migrate", capture_output=True).returncode == 0
    (tmp_path / "link").symlink_to("x.sqlite3")
    before = (tmp_path / "x.sqlite3").stat().st_ino
    for name in ("x.sqlite3", "./x.sqlite3", "link"):
        done = manage(tmp_path, url, "dump_facts", name, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (1, f"error: `{name}` is the database itself. Specify another file.\n")
    assert (tmp_path / "x.sqlite3").stat().st_ino == before


def test_a_standard_stream_that_is_closed_ends_a_command_with_a_line(tmp_path):
    variables = os.environ | {"DATABASE_URL": "sqlite:///x.sqlite3", "SECRET_KEY": ""}
    assert manage(tmp_path, "sqlite:///x.sqlite3", "migrate", capture_output=True).returncode == 0
    closed = "error: Standard input or output is closed.\n"
    full = "error: no space left on device\n"
    for command, status, said in (
        ("check_policy - <&-", 1, closed),
        ("load_facts - <&-", 1, closed),
        ("version >&-", 1, closed),
        ("ask authorize User:ann read Repo:anvil >&-", 2, closed),  # 1 would be an answer
        ("ask authorize User:ann read Repo:anvil >/dev/full", 2, full),
        ("check_policy nothing.polar 2>&-", 1, ""),
    ):
        line = f"{shlex.join([sys.executable, str(ROOT / 'manage.py')])} {command}"
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert (command, done.returncode, done.stderr) == (command, status, said)


def test_a_standard_stream_that_is_closed_ends_a_command_in_a_django_project_with_a_line(tmp_path):
    """There, the streams are those that Django found: None in place of a closed one."""
    url = "sqlite:///x.sqlite3"
    variables = os.environ | {
        "DATABASE_URL": url, "SECRET_KEY": "", "DJANGO_SETTINGS_MODULE": "authz_project.settings",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    assert manage(tmp_path, url, "migrate", capture_output=True).returncode == 0
    for command, said in (
        ("load_facts - <&-", "error: standard input is closed\n"),
        ("check_policy - <&-", "error: standard input is closed\n"),
        ("load_facts - </dev/null >&-", "error: Standard output is closed.\n"),
        ("dump_facts >&-", "error: Standard output is closed.\n"),
    ):
        line = f"{shlex.join([sys.executable, '-m', 'django'])} {command}"
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert (command, done.returncode, done.stderr) == (command, 1, said)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OperationalError("database is locked"), "Cannot use the database: database is locked. Check DATABASE_URL"),
        (InterfaceError("connection already closed"), "Cannot use the database: connection already closed"),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, ""), "error: An argument is not UTF-8 text"),
        (UnicodeEncodeError("ascii", "é", 0, 1, ""), "Set PYTHONIOENCODING=utf-8"),
        (KeyboardInterrupt(), "130"),
    ],
)
def test_what_ends_a_command_is_said(monkeypatch, error, said):
    def fail(argv):
        raise error

    monkeypatch.setattr("authz_project.command_line._run", fail)
    with pytest.raises(SystemExit) as end:
        main()
    assert said in str(end.value.code)


def test_a_mistake_of_ours_is_not_passed_off_as_the_databases(monkeypatch):
    def fail(argv):
        raise ProgrammingError("syntax error")

    monkeypatch.setattr("authz_project.command_line._run", fail)
    with pytest.raises(ProgrammingError):
        main()


def test_the_check_before_deployment_finds_what_is_there_and_nothing_else(tmp_path):
    """Cookies go over plain HTTP, until the admin is said to be reached by HTTPS."""

    def check(**variables: str) -> str:
        return subprocess.run(
            [sys.executable, ROOT / "manage.py", "check", "--deploy"], cwd=tmp_path, capture_output=True, text=True,
            env=os.environ | {"DATABASE_URL": ""} | variables, timeout=60,
        ).stderr  # fmt: skip

    assert re.findall(r"security\.[WE]\d+", told := check()) == [] and "cookies are also sent over plain HTTP" in told
    told = check(PUBLIC_URL="https://authz.example.org")
    assert re.findall(r"security\.[WE]\d+", told) == [] and "cookies" not in told
