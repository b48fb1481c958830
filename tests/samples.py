"""What a document shows, and a reader who types it as it stands, one sample after the other.

The documents are README.md and the pages of authz_project/docs. This is what a page may show, and what is held to be
true of it:

    > Start: an empty service.
    > Start: the end of [the tutorial](tutorial.md).

        One such line below the title says from where its samples go on. The reader then has a folder of their own, the
        command `authz`, a server at http://127.0.0.1:8080, its key in `$KEY`, and a Python. Pages without the line have
        no samples but policies.

    ```sh        runs in that folder, and ends well; or, with `# exits with 1` after its last command, with that code.
                 A line that needs what nobody has here is listed below, in `NOT_RUN`, with the reason
    answers `…`  after it: the end of what it prints
    ```text      after it: all that it prints (if it is to fail, what it says on standard error as well); a time stands
                 for any time, and `…` for anything
    ```json      after it: what it prints, as JSON; a time stands for any time, and the string "…" for anything: at the
                 end of a list for whatever else is in it, and so does the member "…": "…" of an object
    ```sql       after it: what it prints, whatever the white space
    ```python    runs in one Python for the whole page. After each `print(…)` stands what it prints, as
                 `# ['anvil']`; or it stands in a block that follows
    ```polar     is a whole policy, which compiles without a warning and passes its tests. What may follow it on pages
                 about policies (`facts`, `ask`, `problems`), `tests/test_policy_samples.py` holds
    ```yaml      is a file of data bindings that can be read

`pytest tests/test_samples.py --rewrite` writes what is printed into the blocks that tell something else.

Blocks that other programs read (`FOR_OTHER_PROGRAMS`) have a test of their own. The address and the command are written
as above everywhere; `python manage.py` is the same command, for those who have a clone and nothing else.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checks import testing
from policy import rules
from tests.service import ROOT, Service, start_service

DOCS = ROOT / "authz_project" / "docs"
ADDRESS = "http://127.0.0.1:8080"  # of which a test may have another port
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
START = re.compile(r"^> Start: (.*)$", re.MULTILINE)

NOT_RUN = {  # lines of shell without what they remark, and why
    ". .venv/bin/activate": "the environment of this run stands for it",
    "pip install -e .": "likewise",
    "pip install -e . && python manage.py serve": "likewise, and a fixture runs the server, on a free port",
    "authz serve": "likewise",
    "authz serve --metrics-port 9464": "likewise, and `tests/authz_project/test_metrics.py` looks at what it adds",
    "export KEY=e_default_…": "the fixture reads the key that was printed",
    "export DATABASE_URL=postgres://authz:password@db.example.org/authz": "there is no such machine",
    "export SECRET_KEY=…": "it goes with that machine",
    "authz serve --port 8080 --workers 4": "likewise",
    "export DATABASE_URL=sqlite:////var/lib/authz/copy.sqlite3": "the folder is another machine's",
    "authz serve --follow https://authz.example.org --key @edge.key --stale-after 30s": "there is no such machine",
    "authz spaces create europe": "spaces need PostgreSQL: `tests/authz_project/test_spaces.py` does",
    "authz spaces add acme europe": "likewise",
    "authz spaces move acme home": "likewise",
    "authz spaces list": "likewise",
    'pip install -e ".[test]" && pytest': "this is that run",
    'pip install "authz-project[editor]"': "the environment of this run has it",
    'pip install "authz-project[otel]"': "likewise",
    'pip install "authz-project[scim]"': "likewise",
    'pip install "authz-project[sso]"': "likewise",
    "authz serve --scim directory.yaml": "`tests/authz_project/test_scim.py` does",
    "export OTEL_EXPORTER_OTLP_ENDPOINT=https://traces.example.org:4318 OTEL_SERVICE_NAME=authz": "nobody is there",
}
FOR_OTHER_PROGRAMS = {
    "nginx", "ini", "logrotate", "jsonl", "js", "lua", "toml", "jsonc", "ts", "go", "prometheus", "django",
}  # fmt: skip
OF_POLICIES = {"facts", "ask", "problems"}
PRINTED = {"text", "json", "sql"}
ELSEWHERE = {  # pages whose samples a test of their own runs
    "django.md": "tests/embedded/wiki.py",
    "local-sql.md": "tests/localsql/test_page.py",
    "moving.md": "tests/test_moving_page.py",
}


def bare(line: str) -> str:
    return re.sub(r"\s+(# .*)?$", "", line)


# ---- what is shown --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A block of a document, and the text that follows it."""

    language: str
    text: str
    after: str

    def commands(self) -> str:
        return "".join(line for line in self.text.splitlines(keepends=True) if bare(line) not in NOT_RUN)

    def exit_code(self) -> int:
        found = re.search(r" +# exits with (\d+)$", self.text.rstrip())
        return int(found[1]) if found else 0

    def answer(self) -> str:
        """What the text after a sample in shell says that it answers."""
        told = re.match(r"\s+answers `([^`]+)`", self.after)
        return told[1] if told else ""

    def promised(self) -> list[str]:
        """What each `print` of a sample in Python says that it prints."""
        return re.findall(r"^ *print\(.*\)  # (.*)$", self.text, re.MULTILINE)


@dataclass(frozen=True)
class Document:
    path: Path

    def __str__(self) -> str:
        return self.path.name

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def samples(self) -> list[Sample]:
        text = self.text
        return [Sample(found[1], found[2], text[found.end() :]) for found in FENCE.finditer(text)]

    @property
    def start(self) -> str:
        """What the page says of where its samples start; nothing where they need no service."""
        told = START.findall(self.text)
        assert len(told) <= 1, f"{self} starts twice"
        return told[0] if told else EMPTY if self == README else ""

    def before(self) -> "Document | None":
        """The page from whose end this one goes on."""
        if self.start in ("", EMPTY):
            return None
        found = re.fullmatch(r"the end of \[[^\]]+\]\((\w[\w-]*\.md)\)\.", self.start)
        assert found, f"{self} starts from what nobody knows: {self.start}"
        return Document(DOCS / found[1])

    def the_only(self, language: str) -> str:
        (text,) = [sample.text for sample in self.samples if sample.language == language]
        return text

    def retell(self, sample: Sample, printed: str) -> None:
        block = f"```{sample.language}\n%s```"
        told = f"{laid_out(json.loads(printed))}\n" if sample.language == "json" else printed
        assert self.text.count(block % sample.text) == 1
        self.path.write_text(self.text.replace(block % sample.text, block % told))


EMPTY = "an empty service."
README = Document(ROOT / "README.md")
PAGES = [Document(path) for path in sorted(DOCS.glob("*.md"))]
DOCUMENTS = [README, *PAGES]


def page(name: str) -> Document:
    return Document(DOCS / f"{name}.md")


# ---- a reader and what they have ------------------------------------------------------------------------------------

# Reads a sample in each line and answers with what it prints.
SHELL = """
import contextlib, io, json, sys

names = {"__name__": "__main__"}
for line in sys.stdin:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(json.loads(line), names)
    print(json.dumps(printed.getvalue()), flush=True)
"""
COMMAND = f"""#!/bin/sh
exec {sys.executable} {ROOT / "manage.py"} "$@"
"""


@dataclass
class Reader:
    """Has a clone, the server in one terminal, a shell in another, and Python."""

    folder: Path
    service: Service
    python: subprocess.Popen
    rewrite: bool = False  # where a document tells something else, it is told what is printed
    printed: str = ""

    def read(self, document: Document) -> None:
        """Follow the samples of the document, whose start is where the reader is."""
        for sample in document.samples:
            try:
                self.follow(sample)
            except AssertionError:
                if not self.rewrite or sample.language not in PRINTED:
                    raise
                document.retell(sample, self.printed)

    def follow(self, sample: Sample) -> None:
        match sample.language:
            case "sh":
                commands = sample.commands()
                self.printed = self.shell(commands, sample.exit_code()) if commands else ""
                assert self.printed.rstrip().endswith(sample.answer()), f"{sample.text}\nprints\n{self.printed}"
            case "python":
                self.printed = self.type(sample.text)
                promised = sample.promised()
                assert not promised or self.printed.splitlines() == promised, f"{sample.text}\nprints\n{self.printed}"
            case "text":
                assert is_as_told(self.printed, sample.text), f"{sample.text}\nbut prints\n{self.printed}"
            case "json":
                assert are_alike(json.loads(self.printed), json.loads(sample.text)), f"{sample.text}\n{self.printed}"
            case "sql":
                assert self.printed.split() == sample.text.split(), f"{sample.text}\nbut prints\n{self.printed}"
            case "polar":
                hold_to_its_tests(sample.text)
            case other:
                assert other in FOR_OTHER_PROGRAMS, f"nothing runs {other}"

    def shell(self, commands: str, exit_code: int = 0) -> str:
        command = ["bash", "-euc", self.at_home(commands)]
        options = {"cwd": self.folder, "env": self.variables(), "capture_output": True, "text": True}
        done = subprocess.run(command, timeout=60, check=False, **options)
        assert done.returncode == exit_code, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if exit_code else "")

    def type(self, code: str) -> str:
        """What the code prints, in the Python that the earlier samples went to."""
        self.python.stdin.write(json.dumps(self.at_home(code)) + "\n")
        self.python.stdin.flush()
        answer = self.python.stdout.readline()
        assert answer, f"{code}\n{(self.folder / 'python.log').read_text()}"
        return json.loads(answer)

    def at_home(self, text: str) -> str:
        return text.replace(ADDRESS, self.service.origin)

    def variables(self) -> dict[str, str]:
        return variables(self.folder, self.service)


def variables(folder: Path, service: Service) -> dict[str, str]:
    """Of the second terminal: the key that was printed in the first, and the environment that was made there."""
    printed = "".join(log.read_text() for log in folder.glob("serve-*.log"))  # by the server that began with nothing
    key = re.search(r"e_default_\w+", printed)[0]
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    plain = {"PYTEST_ADDOPTS": "-p no:django -p no:xdist"}  # a reader's pytest has no plugins
    return os.environ | {"KEY": key, "PATH": path, "DATABASE_URL": "", "SECRET_KEY": "", **plain}


@contextmanager
def a_reader(folder: Path, rewrite: bool = False, after: Path | None = None) -> Iterator[Reader]:
    """Who has done what every page expects: the server runs in the folder, as the first terminal starts it.

    A reader who goes on from the end of a page starts with a copy of the folder of one who has read it.
    """
    if after is not None:
        shutil.copytree(after, folder, symlinks=True, dirs_exist_ok=True)
    else:
        (folder / "manage.py").symlink_to(ROOT / "manage.py")
        (folder / "bin").mkdir()
        (folder / "bin" / "authz").write_text(COMMAND)
        (folder / "bin" / "authz").chmod(0o755)
    service = start_service(folder, "", "--workers", "1")
    try:
        options = {"cwd": folder, "env": variables(folder, service), "text": True}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with (folder / "python.log").open("w") as log:
            python = subprocess.Popen([sys.executable, "-c", SHELL], stderr=log, **pipes, **options)
        with python:
            yield Reader(folder, service, python, rewrite)
            python.stdin.close()
    finally:
        service.stop()


def laid_out(part: object, depth: int = 0) -> str:
    """JSON in lines; what is short stays on one."""
    line, inner, outer = json.dumps(part, ensure_ascii=False), "  " * (depth + 1), "  " * depth
    if len(line) + 2 * depth <= 100 or not isinstance(part, dict | list):
        return line
    if isinstance(part, list):
        return "[\n" + ",\n".join(inner + laid_out(item, depth + 1) for item in part) + f"\n{outer}]"
    members = (f"{inner}{json.dumps(name)}: {laid_out(member, depth + 1)}" for name, member in part.items())
    return "{\n" + ",\n".join(members) + f"\n{outer}}}"


# ---- what is as told ------------------------------------------------------------------------------------------------

ANYTHING = "…"
TIME = re.compile(r"\b\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2}|\b)")  # of another day


def is_as_told(printed: str, told: str) -> bool:
    pattern = ".*?".join(map(re.escape, without_times(told).split(ANYTHING)))
    return re.fullmatch(pattern, without_times(printed), re.DOTALL) is not None


def without_times(text: str) -> str:
    return TIME.sub("then", text)


def are_alike(found: object, told: object) -> bool:
    match found, told:
        case _, "…":
            return True
        case dict(), dict():
            named = told.keys() - {ANYTHING}
            exact = named <= found.keys() if ANYTHING in told else named == found.keys()
            return exact and all(are_alike(found[key], told[key]) for key in named)
        case list(), list():
            first = told[:-1] if told[-1:] == [ANYTHING] else told
            exact = len(found) == len(told) or first is not told
            return exact and len(found) >= len(first) and all(map(are_alike, found, first))
        case str(), str():
            return is_as_told(found, told)
    return type(found) is type(told) and found == told


def hold_to_its_tests(policy: str) -> None:
    program = rules.compile_text(policy, "main.polar")
    assert program.warnings == (), policy
    assert testing.run(program).errors == (), policy
