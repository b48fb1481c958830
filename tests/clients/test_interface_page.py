"""The programs in other languages on the page about the interface run as they stand, and print what they say."""

import re
import shutil
import subprocess

import pytest

from tests.clients.conftest import cannot
from tests.clients.test_node import VERSION
from tests.samples import a_reader, page

pytestmark = pytest.mark.long

PROMISED = re.compile(r"^.*console\.log\(.*\);? // (.*)$", re.MULTILINE)
PRINTED = re.compile(r"^.*(?:console\.log|fmt\.Println)\(.*\);? // (.*)$", re.MULTILINE)


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


TYPES = ("openapi-fetch", "openapi-typescript", "typescript@5", "@types/node", "tsx")
STRICT = ["--strict", "--noEmit", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler"]


def test_programs_with_types_of_the_description_print_what_they_say(tmp_path):
    interface = page("interface")
    with a_reader(tmp_path) as reader:
        reader.read(interface)
        for program in ("npm", "node", "go"):
            _has(program)
        (tmp_path / "package.json").write_text('{"type": "module"}')
        _run(reader, ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-save", *TYPES])
        described = reader.at_home("http://127.0.0.1:8080/api/openapi.json")
        _run(reader, ["npx", "openapi-typescript", described, "-o", "authz.d.ts"])
        for name, language, command in (("main.ts", "ts", ["npx", "tsx"]), ("main.go", "go", ["go", "run"])):
            text = interface.the_only(language)
            (tmp_path / name).write_text(reader.at_home(text))
            assert _run(reader, [*command, name]).splitlines() == PRINTED.findall(text) != []
        _run(reader, ["npx", "tsc", *STRICT, "--target", "es2022", "main.ts"])


def _has(program: str) -> None:
    if not shutil.which(program):
        cannot(f"there is no {program}")


def _run(reader, command: list[str]) -> str:
    done = subprocess.run(
        command, cwd=reader.folder, env=reader.variables(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
