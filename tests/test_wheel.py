"""What is installed from the wheel alone is all there is: nothing of the clone is missed."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from authz_project import __version__
from authz_project.examples import examples
from tests.authz_project.test_examples import answered
from tests.service import ROOT, Client, start_service

PARTS = ("authz_project", "checks", "facts", "localsql", "policy")
SOURCES_OF_ASSETS = "policy/editor/"  # from which what is in `static` was built
OF_THESE_TESTS = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "PYTHONPATH")  # variables
pytestmark = pytest.mark.long


def run(*command: str | Path, folder: Path) -> str:
    variables = {name: text for name, text in os.environ.items() if name not in OF_THESE_TESTS}
    options = {"cwd": folder, "env": variables, "timeout": 600, "check": False, "text": True, "capture_output": True}
    done = subprocess.run([str(word) for word in command], **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Installed:
    wheel: Path
    folder: Path  # empty at first
    authz: Path  # the command


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Installed:
    """Made by the first of the processes that run these tests; the others wait for it."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "is made").exists():
            make(folder)
            (folder / "is made").touch()
    (wheel,) = folder.glob("*.whl")
    return Installed(wheel, tmp_path_factory.mktemp("empty"), folder / "venv" / "bin" / "authz")


def make(folder: Path) -> None:
    source = folder / "source"
    source.mkdir()
    for name in PARTS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", source, "--wheel-dir", folder, folder=folder)
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", folder / "venv", folder=folder)
    run(folder / "venv" / "bin" / "pip", "install", "--quiet", wheel, folder=folder)


def test_the_wheel_is_complete(installed):
    assert installed.wheel.name == f"authz_project-{__version__}-py3-none-any.whl"
    packed = set(zipfile.ZipFile(installed.wheel).namelist())
    tracked = set(run("git", "ls-files", *PARTS, folder=ROOT).splitlines())
    there = {name for name in tracked if (ROOT / name).exists() and not name.startswith(SOURCES_OF_ASSETS)}
    assert len(there) > 300
    assert sorted(there - packed) == []
    assert {name.split("/")[0] for name in packed} == {*PARTS, f"authz_project-{__version__}.dist-info"}


def test_it_serves_from_an_empty_folder(installed):
    """A world, its questions, the admin with what it looks like, and the documents."""
    own = {"DJANGO_SETTINGS_MODULE": "authz_project.settings", "PYTHONPATH": ""}
    service = start_service(installed.folder, "", "--workers", "1", program=installed.authz, **own)
    try:
        said = service.log.read_text()
        key = re.search(r"e_default_\w+", said)[0]
        assert said.startswith(f"authz {__version__}, Python 3.")
        assert "create a login with `authz createsuperuser`" in said and "manage.py" not in said
        example = examples()[0]
        assert run(installed.authz, "load_example", example.name, folder=installed.folder).startswith(example.title)
        client = Client(service.origin, key)
        for question in example.questions:
            assert answered(client, question) == question.answer
        for page in ("/admin/login/", "/api/docs", "/api/openapi.json", "/docs/", "/static/admin/css/base.css"):
            answer = requests.get(f"{service.origin}{page}", timeout=30)
            assert answer.status_code == 200, page
            for asset in re.findall(r'(?:href|src)="(/static/[^"]+)"', answer.text):
                assert requests.get(f"{service.origin}{asset}", timeout=30).status_code == 200, asset
    finally:
        assert service.stop() == 0
    assert {path.name for path in installed.folder.iterdir()} >= {"authz.sqlite3", "authz.sqlite3.secret"}


def test_each_command_is_there(installed):
    told = run(installed.authz, "--help", folder=installed.folder)
    assert told.startswith(f"authz {__version__}\n\nusage: authz COMMAND")
    assert run(installed.authz, "--version", folder=installed.folder) == f"authz {__version__}\n"
    assert "## " in run(installed.authz, "version", "--changes", folder=installed.folder)
    for name in ("ask_local", "check_policy", "load_example", "replay_decisions", "serve"):
        assert f"usage: authz {name}" in run(installed.authz, name, "--help", folder=installed.folder)
