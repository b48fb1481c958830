"""The command line as somebody meets it: what there is, what a command takes, and which version this is."""

import os
import re
import shlex
import subprocess
import sys
import tomllib

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class

from authz_project import __version__
from authz_project.command_line import GROUPS, overview, program_name
from authz_project.command_runner import CommandLine
from tests.authz_project.test_start import manage
from tests.service import ROOT

APPS = {"authz_project", "checks", "facts", "localsql", "policy"}
NAMED = [name for group in GROUPS.values() for name in group]


def test_every_command_of_ours_is_in_one_group():
    ours = {name for name, app in get_commands().items() if app in APPS}
    assert ours - set(NAMED) == set()
    assert set(NAMED) - set(get_commands()) == set()
    assert len(NAMED) == len(set(NAMED))


def test_each_command_is_one_line():
    lines = overview("authz").splitlines()
    assert max(map(len, lines)) <= 110
    for name in NAMED:
        assert len([line for line in lines if re.match(rf"  {name}  ", line)]) == 1


@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("-h",)])
def test_help_needs_neither_settings_nor_a_database(tmp_path, words):
    variables = os.environ | {"DATABASE_URL": "nonsense", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, ROOT / "manage.py", *words]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, overview("python manage.py") + "\n")
    assert list(tmp_path.iterdir()) == []


def test_help_for_all_names_all(capsys):
    CommandLine(["authz", "help", "--all"]).execute()
    told = capsys.readouterr().out
    assert overview("authz") in told
    assert [name for name in get_commands() if not re.search(rf"\b{name}\b", told)] == []


def test_the_help_of_a_command_says_what_is_its_own(tmp_path):
    told = manage(tmp_path, "sqlite:///x.sqlite3", "load_facts", "--help")
    assert set(re.findall(r"--[a-z-]+", told)) == {"--help", "--environment", "--format", "--skip-bad", "--strict"}
    told = manage(tmp_path, "sqlite:///x.sqlite3", "help", "migrate")
    assert "--settings" not in told and "--skip-checks" not in told and "--fake" in told


def test_options_of_every_command_can_be_given(tmp_path):
    url = f"sqlite:///{tmp_path / 'authz.sqlite3'}"
    manage(tmp_path, url, "migrate", "--verbosity", "0", "--no-color")
    options = ("--traceback", "--settings", "authz_project.settings", "--pythonpath", str(ROOT))
    assert manage(tmp_path, url, "show_policy", "--history", "-v", "2", "--force-color", *options) == ""


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("load_facs", "Did you mean `authz load_facts`?"),
        ("Load-Policy", "Did you mean `authz load_policy`?"),
        ("xyzzy", "`authz help` lists all commands."),
    ],
)
def test_a_mistyped_command_says_which_is_meant(typed, told):
    with pytest.raises(SystemExit) as end:
        CommandLine(["/usr/bin/authz", typed]).execute()
    assert end.value.code == f"error: Command `{typed}` does not exist. {told}"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("serve --stale-after 30s", "--stale-after needs --follow."),
        ("serve --key k", "--key needs --follow."),
        ("serve --metrics-host ::1", "--metrics-host needs --metrics-port."),
        ("ask authorize User:a read Repo:b --plan --as-of 3", "--plan cannot be combined with --as-of."),
        ("ask who read Repo:b --plan --policy-version 3", "--plan cannot be combined with --policy-version."),
        ("ask_local authorize User:a read Repo:b --database x", "--database needs --explain."),
        ("ask_local authorize User:a read Repo:b --explain --raw", "--raw cannot be combined with --explain."),
        ("preview_policy a.polar --questions b --seed 3", "--seed cannot be combined with --questions."),
        ("review_access --at 1 --to 2", "--to needs --from."),
        ("delete_facts p(User:a) --yes", "--yes needs --forget."),
        ("delete_facts p(User:a) --dry-run --forget", "--forget cannot be combined with --dry-run."),
        ("show_policy --diagram svg a.polar --version 3", "--version cannot be combined with FILE."),
        ("check_policy a.polar --seconds 3", "--seconds needs --deep or --against."),
        ("check_policy a.polar --allow x", "--allow needs --against."),
        ("check_policy a.polar --environment x", "--environment needs --against."),
        ("load_policy a.polar --seconds 3", "--seconds needs --never-more."),
        ("load_policy a.polar --allow x", "--allow needs --never-more."),
        ("load_policy --version 3 --dry-run", "--dry-run cannot be combined with --version."),
        ("show_policy --about --history", "--about cannot be combined with --history."),
        ("show_policy --diagram svg --diff 1 2", "--diagram cannot be combined with --diff."),
        ("show_policy --type Repo", "--type needs --diagram."),
        ("import_model openfga a.fga --note x", "--note needs --load."),
        ("import_model spicedb a.zed --environment x", "--environment needs --load."),
        ("load_example --write folder", "--write needs NAME."),
        ("load_example drive --write folder --environment x", "--environment cannot be combined with --write."),
        ("sync_facts a.yaml --metrics-port 1", "--metrics-port needs --watch."),
        ("sync_facts a.yaml --outbox --apply", "--outbox cannot be combined with --apply."),
        ("verify --database postgres://x", "--database needs BACKUP."),
    ],
)
def test_an_option_without_effect_is_refused(typed, told):
    """Whoever gives it believes that it counts."""
    with pytest.raises(CommandError) as refused:
        call_command(*shlex.split(typed))
    assert str(refused.value) == told


def test_colors_are_as_the_options_say():
    def is_coloured(*options: str) -> bool:
        command = load_command_class("policy", "show_policy")
        call_command(command, *options, "--diff", os.devnull, os.devnull)
        return command.is_coloured

    assert [is_coloured(), is_coloured("--force-color"), is_coloured("--no-color")] == [False, True, False]


def test_what_to_type_is_said_as_it_was_typed():
    assert program_name("/venv/bin/authz") == "authz"
    assert program_name("/clone/manage.py") == "python manage.py"


def test_a_users_mistake_is_an_error_and_not_the_name_of_a_class(tmp_path):
    command = [sys.executable, ROOT / "manage.py", "check_policy", "no-such-file"]
    variables = os.environ | {"DATABASE_URL": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "error: cannot read `no-such-file`: no such file or directory; check the path\n"
    done = subprocess.run([*command, "--traceback"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 1 and "CommandError: cannot read" in done.stderr
    of_django = [sys.executable, ROOT / "manage.py", "createsuperuser", "--noinput"]
    done = subprocess.run(of_django, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "error: You must use --username with --noinput.\n")


def test_a_database_without_tables_is_named(tmp_path):
    (tmp_path / "authz.sqlite3").touch()
    command = [sys.executable, ROOT / "manage.py", "api_keys", "list"]
    variables = os.environ | {"DATABASE_URL": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    told = f"error: The database {tmp_path}/authz.sqlite3 has no tables. Run `python manage.py serve` or "
    assert (done.returncode, done.stderr) == (1, f"{told}`python manage.py migrate`.\n")


@pytest.mark.parametrize("words", [
    "ask authorize User:ann read Doc:plan", "compare_policies 1 2", "how allow(User{\"a\"},\"read\",Doc{\"b\"})",
    "prove allow(_:User,\"read\",_:Doc)",
])  # fmt: skip
def test_without_a_database_no_answer_is_given(tmp_path, words):
    """1 is an answer of these commands."""
    command = [sys.executable, ROOT / "manage.py", *words.split(" ")]
    variables = os.environ | {"DATABASE_URL": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.startswith("error: No database at "), done.stderr


# ---- versions ----------------------------------------------------------------------------------------------------


def test_the_version_is_the_packages():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert pyproject["project"]["dynamic"] == ["version"]
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "authz_project.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_versions_are_ours(tmp_path):
    url = f"sqlite:///{tmp_path / 'authz.sqlite3'}"
    assert manage(tmp_path, url, "--version") == f"authz {__version__}\n"
    assert manage(tmp_path, url, "load_facts", "--version") == f"authz {__version__}\n"
    assert manage(tmp_path, url, "migrate", "--version") == f"authz {__version__}\n"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_version_says_what_it_works_on(database_urls, tmp_path, kind):
    url = database_urls(kind, "version_told")
    manage(tmp_path, url, "migrate", SECRET_KEY="x" * 50)
    manage(tmp_path, url, "load_example", "code", SECRET_KEY="x" * 50)
    told = manage(tmp_path, url, "version", SECRET_KEY="x" * 50)
    assert told.startswith(f"authz {__version__}\n  Python    3.")
    assert f"  database  {'SQLite 3.' if kind == 'sqlite' else 'PostgreSQL 1'}" in told
    assert "  policy    version 1 of `default`, since 2" in told
    assert "password" not in told


def test_version_says_what_is_the_matter_with_the_database(tmp_path):
    told = manage(tmp_path, "postgres://u:hush@127.0.0.1:1/none", "version", SECRET_KEY="x" * 50)
    assert "database  cannot be used: connection failed" in told and "hush" not in told


def test_version_says_that_a_database_is_not_prepared(tmp_path):
    file = tmp_path / "new.sqlite3"
    told = manage(tmp_path, f"sqlite:///{file}", "version")
    assert f"database  none at {file}; `serve` or `migrate` creates it" in told
    file.touch()
    told = manage(tmp_path, f"sqlite:///{file}", "version")
    assert "database  SQLite" in told and "database  cannot be used: no such table" in told


def test_changes_are_told_from_the_latest_on(tmp_path):
    told = manage(tmp_path, "", "version", "--changes")
    assert told == (ROOT / "authz_project" / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", told, re.MULTILINE)
    assert versions[0] == __version__
