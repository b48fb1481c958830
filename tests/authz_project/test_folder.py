"""What commands leave in the folder where they run: nothing, unless they are to make or change a database."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from authz_project.command_line import GROUPS
from authz_project.secret_key import ignore_in_git
from tests.service import ROOT

COMMANDS = sorted(name for group in GROUPS.values() for name in group)
POLICY = 'actor User {} resource Doc { permissions = ["read"]; }\n'
POLICY += 'test "t" { assert_not allow(User{"a"}, "read", Doc{"d"}); }'
BINDINGS = 'facts: {"is_public(Doc:_)": {query: SELECT id FROM docs}}\n'
# What needs no database, and how it ends.
WITHOUT_DATABASE = {
    "check_policy ../main.polar": 0,
    "format_policy --check ../main.polar": 1,
    "test_policy ../main.polar": 0,
    "show_policy --diff ../main.polar ../main.polar": 0,
    "show_policy --diagram svg ../main.polar": 0,
    "compare_policies ../main.polar ../main.polar": 0,
    "prove allow(u:User,a,d:Doc) --policy ../main.polar": 1,
    "how allow(u:User,a,d:Doc) --policy ../main.polar": 0,
    "import_model openfga ../model.fga": 0,
    "import_model spicedb ../schema.zed": 0,
    "authz_bindings": 0,
    "authz_drain": 1,
    "load_example": 0,
    "version --changes": 0,
    "check": 0,
}
# What reads a database or changes what is in one. Where there is none, it says so and ends with 1, or with 2 if 1 is an
# answer.
WITH_DATABASE = (
    "load_policy --version 1", "ask authorize User:a read Doc:d", "ask_local authorize User:a read Doc:d",
    "audit_facts",
    "backup copy.sqlite3", "check_bindings ../bindings.yaml", "verify", "api_keys create",
    "delete_facts p(User:_)",
    "dump_facts", "prune", "ask authorize --explain User:a read Doc:d", "follow_changes",
    "delete_facts --forget --yes p(User:a)",
    "api_keys list", "load_example code", "load_facts ../facts.jsonl", "load_policy ../main.polar",
    "show_policy --history", "preview_policy ../main.polar",
    "review_access --from 1",
    "api_keys revoke x", "api_keys rotate x", "show_policy",
    "changepassword ada", "createsuperuser --noinput --username ada --email a@example.org", "migrate --plan",
)  # fmt: skip
TOLD_OTHERWISE = {
    "check --deploy": 0,
    "sync_facts --outbox ../bindings.yaml": 1,
    "mcp": 1,
    "replay_decisions ../facts.jsonl": 0,
    "spaces list": 1,
    "sync_facts ../bindings.yaml": 1,
    "verify ../none.sqlite3": 1,
    "version": 0,
}
MAKES = {"serve", "migrate", "language_server"}  # the last one goes on until it is told to end; its help is looked at

# Runs commands, one after the other, and says how each ended, what it wrote and what was in the folder afterwards.
RUN = """
import contextlib, io, json, os, sys
from authz_project.command_line import main
told = {}
for command in json.loads(sys.argv.pop()):
    sys.argv[:] = ["authz", *command.split()]
    text = io.StringIO()
    status = 0
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    if isinstance(status, str):
        text.write(status)
        status = 1
    told[command] = [status, text.getvalue(), sorted(os.listdir())]
print(json.dumps(told))
"""


def ended(folder: Path, commands, **variables: str) -> dict[str, tuple[int, str, list[str]]]:
    (folder / "main.polar").write_text(POLICY)
    (folder / "bindings.yaml").write_text(BINDINGS)
    (folder / "facts.jsonl").write_text("")
    (folder / "model.fga").write_text("model\n  schema 1.1\ntype user\n")
    (folder / "schema.zed").write_text("definition user {}\n")
    inside = folder / "empty"
    inside.mkdir()
    given = (
        os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "DATABASE_URL": "",
            "SECRET_KEY": "",
            "DJANGO_SETTINGS_MODULE": "authz_project.settings",
        }
        | variables
    )
    done = subprocess.run(
        [sys.executable, "-c", RUN, orjson.dumps(list(commands)).decode()],
        cwd=inside, env=given, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return orjson.loads(done.stdout.splitlines()[-1])


def test_every_command_is_looked_at():
    looked_at = [*WITHOUT_DATABASE, *WITH_DATABASE, *TOLD_OTHERWISE, *MAKES]
    assert {command.split()[0] for command in looked_at} == set(COMMANDS)


def test_help_leaves_nothing(tmp_path):
    for command, (status, told, left) in ended(tmp_path, [f"{name} --help" for name in COMMANDS]).items():
        assert (status, left) == (0, []) and "usage:" in told, (command, told)


def test_commands_leave_nothing_where_there_is_no_database(tmp_path):
    wanted = WITHOUT_DATABASE | TOLD_OTHERWISE | {each: 1 + each.startswith("ask") for each in WITH_DATABASE}
    for command, (status, told, left) in ended(tmp_path, wanted).items():
        assert (status, left) == (wanted[command], []), (command, told, left)
        assert command not in WITH_DATABASE or "No database at " in told, (command, told)


def test_what_needs_no_database_connects_to_none(tmp_path):
    url = "postgres://nobody@127.0.0.1:1/none"
    for command, (status, told, left) in ended(tmp_path, WITHOUT_DATABASE, DATABASE_URL=url).items():
        assert (status, left) == (WITHOUT_DATABASE[command], []), (command, told)


def test_a_secret_is_its_owners_and_git_ignores_it(tmp_path):
    [(status, told, left)] = ended(tmp_path, ["migrate --verbosity 0"]).values()
    assert status == 0, told
    inside = tmp_path / "empty"
    assert {".gitignore", "authz.sqlite3", "authz.sqlite3.secret"} <= set(left)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in inside.iterdir())
    subprocess.run(["git", "init", "-q"], cwd=inside, check=True)
    added = subprocess.run(["git", "add", "-n", "."], cwd=inside, capture_output=True, text=True, check=True).stdout
    assert added == "add '.gitignore'\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("*.sqlite3*\n*.secret\n", "*.sqlite3*\n*.secret\n"),
        ("build/", "build/\n/a.sqlite3\n/a.sqlite3.secret\n"),
        ("/a.sqlite3\n", "/a.sqlite3\n/a.sqlite3.secret\n"),
    ],
)
def test_a_gitignore_that_is_there_is_kept_and_lengthened(tmp_path, before, after):
    path = tmp_path / ".gitignore"
    path.write_text(before)
    for _ in range(2):
        ignore_in_git(tmp_path, "a.sqlite3", "a.sqlite3.secret")
    assert path.read_text() == after


def test_this_repository_ignores_what_serve_makes(tmp_path):
    """Otherwise the first start in a clone would change a file of the repository."""
    text = (ROOT / ".gitignore").read_text()
    (tmp_path / ".gitignore").write_text(text)
    where = {"DATABASE_URL": f"sqlite:///{tmp_path / 'authz.sqlite3'}", "SECRET_KEY": ""}
    command = [sys.executable, ROOT / "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | where, check=True)
    assert (tmp_path / ".gitignore").read_text() == text
