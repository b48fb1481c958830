"""Every sample in the README runs as it stands, one after the other, as somebody types them who reads from the top."""

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands, load_command_class

from authz_project.server.process import FINISH_WITHIN
from checks.decisions.lines import Line, line_of_text
from localsql.bindings import bindings_from_text
from localsql.dialects import DIALECTS
from tests.service import ROOT, Service, start_service

README = (ROOT / "README.md").read_text()
ADDRESS = "http://127.0.0.1:8080"  # of which a test may have another port
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

NOT_RUN = {  # lines of shell without what they remark, and why
    "python3 -m venv .venv && . .venv/bin/activate": "the environment of this run stands for it",
    ". .venv/bin/activate": "likewise",
    "pip install -e .": "likewise",
    "python manage.py serve": "a fixture runs it, on a free port",
    "export KEY=e_default_…": "the fixture reads the key that was printed",
    "export DATABASE_URL=postgres://authz:password@db.example.org/authz": "there is no such machine",
    "export SECRET_KEY=…": "it goes with that machine",
    "python manage.py serve --port 8080 --workers 4": "likewise",
    'pip install -e ".[test]" && pytest': "this is that run",
}
FOR_OTHER_PROGRAMS = {"nginx", "ini", "logrotate", "json"}  # each has a test of its own below


def bare(line: str) -> str:
    return re.sub(r"\s+(# .*)?$", "", line)


@dataclass(frozen=True)
class Sample:
    """A block of the README, and the text that follows it."""

    language: str
    text: str
    after: str

    def commands(self) -> str:
        return "".join(line for line in self.text.splitlines(keepends=True) if bare(line) not in NOT_RUN)

    def answer(self) -> str:
        """What the text after a sample in shell says that it answers."""
        told = re.match(r"\s+answers `([^`]+)`", self.after)
        return told[1] if told else ""

    def promised(self) -> list[str]:
        """What each `print` of a sample in Python says that it prints."""
        return re.findall(r"^ *print\(.*\)  # (.*)$", self.text, re.MULTILINE)


SAMPLES = [Sample(found[1], found[2], README[found.end() :]) for found in FENCE.finditer(README)]


def the_only(language: str) -> str:
    (text,) = [sample.text for sample in SAMPLES if sample.language == language]
    return text


# ---- a reader and what they have ------------------------------------------------------------------------------------

# A shell of their Django project, which reads a sample in each line and answers with what it prints.
SHELL = """
import contextlib, io, json, sys
import django

django.setup()
names = {}
for line in sys.stdin:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(json.loads(line), names)
    print(json.dumps(printed.getvalue()), flush=True)
"""
PROJECT = {
    "__init__.py": "",
    "settings.py": """
INSTALLED_APPS = ["company"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "company.sqlite3"}}
""",
    "models.py": """
from django.db import models


class Repository(models.Model):
    id = models.TextField(primary_key=True)
    name = models.TextField()
    organization_id = models.TextField()

    class Meta:
        db_table = "repository"
        managed = False
""",
}


@dataclass
class Reader:
    """Has a clone, the server in one terminal, a shell in another, and Python."""

    folder: Path
    service: Service
    python: subprocess.Popen

    def shell(self, commands: str) -> str:
        command = ["bash", "-euc", self.at_home(commands)]
        options = {"cwd": self.folder, "env": variables(self.service), "capture_output": True, "text": True}
        done = subprocess.run(command, timeout=60, check=False, **options)
        assert done.returncode == 0, f"{commands}\n{done.stderr}"
        return done.stdout

    def type(self, code: str) -> list[str]:
        """What the code prints, in the Python that the earlier samples went to."""
        self.python.stdin.write(json.dumps(self.at_home(code)) + "\n")
        self.python.stdin.flush()
        answer = self.python.stdout.readline()
        assert answer, f"{code}\n{(self.folder / 'python.log').read_text()}"
        return json.loads(answer).splitlines()

    def at_home(self, text: str) -> str:
        return text.replace(ADDRESS, self.service.origin)


def variables(service: Service, **others: str) -> dict[str, str]:
    """Of the second terminal: the key that was printed in the first, and the environment that was made there."""
    key = re.search(r"e_default_\w+", service.log.read_text())[0]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"KEY": key, "PATH": path, "DATABASE_URL": "", "SECRET_KEY": ""} | others


@pytest.fixture
def visited(tmp_path) -> Service:
    """A server as the first terminal starts it."""
    running = start_service(tmp_path, "", "--workers", "1")
    yield running
    running.stop()


@pytest.fixture
def reader(tmp_path, visited) -> Reader:
    (tmp_path / "manage.py").symlink_to(ROOT / "manage.py")
    (tmp_path / "company").mkdir()
    for name, text in PROJECT.items():
        (tmp_path / "company" / name).write_text(text)
    options = {"cwd": tmp_path, "env": variables(visited, DJANGO_SETTINGS_MODULE="company.settings"), "text": True}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (tmp_path / "python.log").open("w") as log:
        python = subprocess.Popen([sys.executable, "-c", SHELL], stderr=log, **pipes, **options)
    with python:
        yield Reader(tmp_path, visited, python)


# ---- what they do ---------------------------------------------------------------------------------------------------


def without_minutes(text: str) -> str:
    """The README was written at another time."""
    return re.sub(r"\b\d{4}-\d{2}-\d{2} \d{2}:\d{2}\b", "then", text)


def test_every_sample_runs_as_it_stands(reader):
    printed = ""
    for sample in SAMPLES:
        if sample.language == "sh":
            printed = reader.shell(sample.commands()) if sample.commands() else ""
            assert printed.endswith(sample.answer()), sample.text
        elif sample.language == "python":
            assert reader.type(sample.text) == sample.promised() != []
        elif sample.language == "text":
            assert without_minutes(printed) == without_minutes(sample.text)  # what the shell before it prints
        else:
            assert sample.language in FOR_OTHER_PROGRAMS


def test_every_sample_is_found():
    """Also those of another form would be: without a language, or by four spaces."""
    assert README.count("```") == 2 * len(SAMPLES)
    assert re.findall(r"^(?:    |\t).*", FENCE.sub("", README), re.MULTILINE) == []
    assert any(sample.answer() for sample in SAMPLES)


def test_what_is_not_run_is_there_and_names_what_exists():
    lines = [line for sample in SAMPLES if sample.language == "sh" for line in sample.text.splitlines()]
    assert set(NOT_RUN) - {bare(line) for line in lines} == set()
    exported = set(re.findall(r"^export (\w+)=", "\n".join(NOT_RUN), re.MULTILINE)) - {"KEY"}
    text = (ROOT / "authz_project" / "settings.py").read_text()
    assert [name for name in sorted(exported) if f'"{name}"' not in text] == []


def test_every_command_is_one_that_can_be_given():
    """Also those that are not run, and those within the text."""
    given = set(re.findall(r"python manage\.py (\w+)([^`…\n]*)", README))
    assert {"ask", "createsuperuser", "explain", "load_policy", "serve"} <= {name for name, _ in given}
    for name, words in given:
        options_of(name, shlex.split(words, comments=True))


def options_of(name: str, words: list[str]):
    """What a command makes of the words; it fails on what it does not know."""
    return load_command_class(get_commands()[name], name).create_parser("manage.py", name).parse_args(words)


def test_the_address_is_that_of_serve():
    options = options_of("serve", [])
    assert f"http://{options.host}:{options.port}" == ADDRESS
    assert set(re.findall(r"http://127\.0\.0\.1:\d+", README)) == {ADDRESS}


def test_the_bindings_are_as_good_for_every_dialect():
    (text,) = re.findall(r"^cat > bindings.yaml <<'END'\n(.*?)^END$", README, re.DOTALL | re.MULTILINE)
    _, others = re.match(r"dialect: (\w+) +# or (.*)", text).groups()
    names = re.findall(r"(\w+)(?: \([^)]*\))?(?:, |$)", others)
    assert {DIALECTS[name] for name in ("sqlite", *names)} == set(DIALECTS.values())
    told = [bindings_from_text(text.replace("dialect: sqlite", f"dialect: {name}")) for name in names]
    assert {len(each.facts) for each in told} == {2}
    assert bindings_from_text(text.replace("dialect: sqlite", "")).dialect is told[0].dialect


# ---- what other programs read ---------------------------------------------------------------------------------------

OF_NGINX = {"listen", "server_name", "client_max_body_size", "proxy_pass", "proxy_set_header"}
OF_SYSTEMD = {"User", "WorkingDirectory", "EnvironmentFile", "ExecStart", "Restart", "TimeoutStopSec"}


def test_the_proxy_lets_through_what_the_service_reads():
    text = the_only("nginx")
    directives = re.findall(r"^ +(\w+) ([^;{}]+);$", text, re.MULTILINE)
    blocks = re.findall(r"^ *(server|location /) \{$", text, re.MULTILINE)
    assert len(directives) + 2 * len(blocks) == len(text.splitlines())
    named = dict(directives)
    assert set(named) == OF_NGINX
    assert named["proxy_pass"] == ADDRESS
    assert int(named["client_max_body_size"].removesuffix("m")) * 2**20 > settings.MAX_BODY_BYTES
    headers = dict(value.split() for name, value in directives if name == "proxy_set_header")
    address = re.search(r"`CLIENT_ADDRESS_HEADER=([\w-]+)`", README)[1]
    assert headers == {"Host": "$host", "X-Request-ID": "$request_id", address: "$remote_addr"}
    assert f"`ALLOWED_HOSTS={named['server_name']}`" in README


def test_the_line_of_the_decision_log_is_one_and_can_be_read():
    line = line_of_text(the_only("json").replace("\n", ""), 1)
    assert isinstance(line, Line) and line.endpoint == "authorize"
    assert set(json.loads(the_only("json"))) == set(Line.__slots__) - {
        "number", "is_published_client", "context_facts_left_out",
    }  # fmt: skip


def test_the_log_that_is_turned_is_the_decision_log():
    path = the_only("logrotate").partition(" ")[0]
    assert f"`DECISION_LOG={path}`" in README


def test_the_unit_starts_and_stops_the_service():
    parser = configparser.ConfigParser()
    parser.optionxform = str
    parser.read_string(the_only("ini"))
    unit = parser["Service"]
    assert set(unit) == OF_SYSTEMD
    python, *command = unit["ExecStart"].split()
    assert python.startswith(f"{unit['WorkingDirectory']}/.venv/")
    assert command[:2] == ["manage.py", "serve"]
    assert options_of("serve", command[2:])
    assert int(unit["TimeoutStopSec"]) > FINISH_WITHIN
