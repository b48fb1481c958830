"""Somebody who follows a page of the documents: with a clone, a running service, a shell and Python."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.samples import ADDRESS, COMMAND, FENCE
from tests.service import ROOT, Service, start_service

HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
Samples = list[tuple[str, str]]  # of each its language and its text

# Python that reads a sample in each line and answers with what it prints.
PYTHON = """
import contextlib, io, json, sys

names = {"__name__": "__main__"}
for line in sys.stdin:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(json.loads(line), names)
    print(json.dumps(printed.getvalue()), flush=True)
"""


def page_of(name: str) -> str:
    return (ROOT / "authz_project" / "docs" / name).read_text()


def sections(page: str) -> dict[str, Samples]:
    """The samples below each heading of the second level."""
    _, *parts = HEADING.split(FENCE.sub(lambda found: found[0].replace("\n## ", "\n##"), page))
    return {title: FENCE.findall(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}


@dataclass
class Reader:
    folder: Path
    service: Service
    variables: dict[str, str]
    elsewhere: dict[str, str] = field(default_factory=dict)  # what addresses on the page are here

    @property
    def key(self) -> str:
        """That was printed when the service first started."""
        return re.search(r"e_default_\w+", self.service.log.read_text())[0]

    def follow(self, samples: Samples) -> None:
        """Type the samples as they stand; all that a page says that they print, they print."""
        with self._python() as python:
            printed = ""
            for language, text in samples:
                if language == "sh":
                    printed = self.shell(text)
                elif language == "python":
                    assert self._typed(python, text) == re.findall(r"^ *print\(.*\)  # (.*)$", text, re.MULTILINE)
                elif language == "text":
                    assert printed.splitlines() == text.splitlines()

    def shell(self, commands: str) -> str:
        """What a terminal shows: both streams, as they come."""
        options = {"cwd": self.folder, "env": self.variables, "stdout": subprocess.PIPE, "text": True}
        command = ["bash", "-euc", self._at_home(commands)]
        done = subprocess.run(command, timeout=60, check=False, stderr=subprocess.STDOUT, **options)
        assert done.returncode == 0, f"{commands}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def _python(self) -> Iterator[subprocess.Popen]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with (self.folder / "python.log").open("w") as log:
            options = {"cwd": self.folder, "env": self.variables, "stderr": log}
            python = subprocess.Popen([sys.executable, "-c", PYTHON], **pipes, **options)
        with python:
            yield python

    def _typed(self, python: subprocess.Popen, code: str) -> list[str]:
        python.stdin.write(json.dumps(self._at_home(code)) + "\n")
        python.stdin.flush()
        answer = python.stdout.readline()
        assert answer, f"{code}\n{(self.folder / 'python.log').read_text()}"
        return json.loads(answer).splitlines()

    def _at_home(self, text: str) -> str:
        for there, here in self.elsewhere.items():
            text = text.replace(there, here)
        return text


@contextmanager
def reading(folder: Path) -> Iterator[Reader]:
    service = start_service(folder, "", "--workers", "1")
    (folder / "bin").mkdir()
    (folder / "bin" / "authz").write_text(COMMAND)
    (folder / "bin" / "authz").chmod(0o755)
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"PATH": path, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "HOME": str(folder)}
    reader = Reader(folder, service, os.environ | variables | {"DATABASE_URL": "", "SECRET_KEY": ""})
    reader.variables["KEY"] = reader.key
    reader.elsewhere[ADDRESS] = service.origin
    yield reader
    service.stop()
