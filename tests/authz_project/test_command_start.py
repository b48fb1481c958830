"""What a command takes before it does anything: it imports what it needs, and no pages, requests or other drivers."""

import json
import os
import resource
import subprocess
import sys

import pytest

from tests import yardstick
from tests.service import ROOT

SECONDS = 0.6  # of processor time
SECONDS_OF_REQUESTS = (
    0.75  # likewise: 0.6 at most where nothing else runs, and the framework's requests are much to read
)
HELP = 0.1  # the same, of what needs no Django
TRIES = 8
# Runs a command, and writes at its end which modules there are.
RUN = """
import atexit, json, sys
place = sys.argv.pop(1)
atexit.register(lambda: open(place, "w").write(json.dumps(sorted(sys.modules))))
from authz_project.command_line import main
main()
"""
OF_PAGES = (
    "rest_framework.serializers",
    "rest_framework.views",
    "authz_project.urls",
    "checks.ask_pages.pages",
    "policy.pages.admin",
    "whitenoise",
)
OF_ADMIN = ("authz_project.urls", "checks.ask_pages.pages", "policy.pages.admin", "granian", "pytest")
OF_LOCAL_SQL = ("sqlglot", "localsql.bindings")
OF_BINDINGS = ("sqlglot", "yaml", "localsql.bindings")
OTHERS = ("psycopg", "granian", "requests", "urllib3", "pytest")
COMMANDS = [
    "ask authorize User:a read Doc:d", "ask list User:a read Doc", "ask authorize --explain User:a read Doc:d",
    "audit_facts", "check_policy -", "load_policy --version 1",
    "api_keys create", "api_keys list", "api_keys revoke --help", "api_keys rotate --help",
    "createsuperuser --help", "delete_facts --help", "show_policy --diff 1", "dump_facts",
    "follow_changes --help", "format_policy -",
    "prune --history-days 1", "review_access --help", "help --all", "language_server --help",
    "load_facts -", "load_policy -", "migrate",
    "load_example", "preview_policy -", "show_policy", "show_policy --history", "test_policy -",
    "show_policy --diagram svg -",
    "version", "backup --help", "verify", "compare_policies --help", "prove --help", "how --help",
    "mcp --help", "spaces --help",
]  # fmt: skip
WITH_BINDINGS = [
    "check_bindings -", "ask_local --help", "ask_local list User:a read Doc doc.id",
    "sync_facts --help", "authz_bindings --help", "authz_drain --help",
    "import_model openfga --help",
]  # fmt: skip
WITH_REQUESTS = ["replay_decisions --help", "replay_decisions -"]  # which it decodes as the endpoints do
POLICY = 'actor User {} resource Doc { permissions = ["read"]; }'


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Runs a command on a database with a policy: its modules, and its processor time."""
    folder = tmp_path_factory.mktemp("commands")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    variables |= {
        "DATABASE_URL": f"sqlite:///{folder / 'authz.sqlite3'}",
        "PYTHONPATH": str(ROOT),
    }

    def run(command: str) -> tuple[list[str], float]:
        words, modules = command.split(), folder / "modules.json"
        given = "" if words[0] in ("load_facts", "check_bindings") else POLICY
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", RUN, str(modules), *words],
            cwd=folder, env=variables, input=given, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return json.loads(modules.read_text()), seconds

    run("migrate")
    run("load_policy -")
    return run


@pytest.mark.parametrize("command", [*COMMANDS, "serve --help", *WITH_BINDINGS, *WITH_REQUESTS])
def test_a_command_answers_soon_and_imports_nothing_that_it_has_no_use_for(begun, command):
    needless = [*OF_PAGES, *OTHERS, *([] if command in WITH_BINDINGS else OF_BINDINGS)]
    if command.startswith("serve"):
        needless.remove("granian")
    if command in WITH_REQUESTS:
        needless = [*OF_ADMIN, *OF_LOCAL_SQL]
    modules, seconds = begun(command)  # of which the first ones also compile what was not compiled
    assert len(modules) > 200
    assert [each for each in needless if any(f"{module}.".startswith(f"{each}.") for module in modules)] == []
    assert_soon(begun, command, SECONDS_OF_REQUESTS if command in WITH_REQUESTS else SECONDS, seconds)


@pytest.mark.parametrize("command", ["--help", "--version", "help"])
def test_help_is_there_at_once(begun, command):
    modules, seconds = begun(command)
    assert [each for each in modules if each.startswith("django")] == []
    assert_soon(begun, command, HELP, seconds)


def assert_soon(begun, command: str, limit: float, first: float) -> None:
    """Begin it again while it took too long: what else runs makes it slower at times, and never faster."""
    taken = [first]
    while len(taken) <= TRIES and min(taken) >= limit:
        taken.append(begun(command)[1] / yardstick.slowness())
    assert min(taken) < limit, f"{min(taken):.2f} s of processor time, where {limit:.2f} s are allowed"


def test_all_commands_of_the_service_are_looked_at():
    written = {path.stem for path in ROOT.glob("*/management/commands/*.py")} - {"__init__"}
    begun = {command.split()[0] for command in [*COMMANDS, "serve", *WITH_BINDINGS, *WITH_REQUESTS]}
    assert written == begun - {"help", "createsuperuser"}


WORKER = """
import sys
import authz_project.wsgi, authz_project.urls
from django.test import Client
for page in ("/docs/", "/api/docs", "/api/openapi.json"):
    assert Client().get(page).status_code == 200
print(*sorted({name.partition(".")[0] for name in sys.modules} | {name for name in sys.modules if "authz" in name}))
"""
OF_NEIGHBOURS = {
    "mcp", "anyio", "httpx", "scim2_models", "pydantic", "email_validator", "mozilla_django_oidc", "jwt", "requests",
    "pygls", "lark", "clingo", "opentelemetry", "authz_project.client", "authz_project.mcp_guard",
    "authz_project.mcp_server", "authz_project.scim", "authz_project.server.follower", "authz_project.sso",
}  # fmt: skip


def test_a_worker_imports_no_neighbour_that_it_does_not_use(tmp_path):
    variables = os.environ | {
        "DJANGO_SETTINGS_MODULE": "authz_project.settings", "DATABASE_URL": "", "PYTHONPATH": str(ROOT),
        "SECRET_KEY": "of this test " * 4,
    }  # fmt: skip
    command = [sys.executable, "-c", WORKER]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert "authz_project.wsgi" in imported and imported & OF_NEIGHBOURS == set()
