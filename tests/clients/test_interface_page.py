"""The programs in other languages on the page about the interface run as they stand, and print what they say."""

import re
import shutil
import subprocess

import pytest

from tests.clients.conftest import cannot
from tests.clients.test_node import VERSION
from tests.samples import a_reader, page

pytestmark = pytest.mark.long

PROMISED = re.compile(r"^.*(?:console\.log|fmt\.Println)\(.*\);? // (.*)$", re.MULTILINE)


def test_the_programs_print_what_they_say(tmp_path):
    interface = page("interface")
    with a_reader(tmp_path) as reader:
        reader.read(interface)
        _has("npm")
        _run(reader, ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-save", f"oso-cloud@{VERSION}"])
        for language, file, command in (("js", "main.mjs", ["node"]), ("go", "main.go", ["go", "run"])):
            _has(command[0])
            text = interface.the_only(language)
            (tmp_path / file).write_text(reader.at_home(text))
            assert _run(reader, [*command, file]).splitlines() == PROMISED.findall(text) != []


def _has(program: str) -> None:
    if not shutil.which(program):
        cannot(f"there is no {program}")


def _run(reader, command: list[str]) -> str:
    variables = {"GOCACHE": _compiled_before(), "GOFLAGS": "-mod=mod", "GO111MODULE": "off"}
    done = subprocess.run(
        command, cwd=reader.folder, env=reader.variables() | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _compiled_before() -> str:
    """Where whoever runs the tests has what Go compiled: its own packages take a minute, each time they begin anew."""
    return subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
