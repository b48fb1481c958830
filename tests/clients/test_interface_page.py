"""The JavaScript program on the page about the interface runs as it stands, and prints what it says."""

import re
import shutil
import subprocess

import pytest

from tests.clients.conftest import cannot
from tests.clients.test_node import VERSION
from tests.samples import a_reader, page

pytestmark = pytest.mark.long

PROMISED = re.compile(r"^.*console\.log\(.*\);? // (.*)$", re.MULTILINE)


def test_the_program_prints_what_it_says(tmp_path):
    interface = page("interface")
    with a_reader(tmp_path) as reader:
        reader.read(interface)
        _has("npm")
        _run(reader, ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-save", f"oso-cloud@{VERSION}"])
        _has("node")
        text = interface.the_only("js")
        (tmp_path / "main.mjs").write_text(reader.at_home(text))
        assert _run(reader, ["node", "main.mjs"]).splitlines() == PROMISED.findall(text) != []


def _has(program: str) -> None:
    if not shutil.which(program):
        cannot(f"there is no {program}")


def _run(reader, command: list[str]) -> str:
    done = subprocess.run(
        command, cwd=reader.folder, env=reader.variables(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
