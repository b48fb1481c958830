"""The first hour of a stranger, as far as a program can have it: the wheel alone, in an empty folder, no network.

The packages that the service needs are those of the environment of the tests; its own code comes from the wheel.
"""

import os
import re
import shutil
import signal
import site
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import requests

from tests.postgresql import free_port
from tests.service import ROOT, start_service

PARTS = ("authz_project", "checks", "facts", "localsql", "policy")
POLICY = """actor User {}

resource Document {
  roles = ["reader", "writer"];
  permissions = ["read", "edit"];
  "reader" if "writer";
  "read" if "reader";
  "edit" if "writer";
}

test "readers do not edit" {
  setup { has_role(User{"ann"}, "reader", Document{"plan"}); }
  assert allow(User{"ann"}, "read", Document{"plan"});
  assert_not allow(User{"ann"}, "edit", Document{"plan"});
}
"""
FACTS = "predicate,type,id,type,id,type,id\nhas_role,User,ann,String,reader,Document,plan\n"
BROWSER = {"Accept": "text/html,*/*;q=0.8"}
ASKED = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Document", "resource_id": "plan"}
OF_THESE_TESTS = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "PYTHONPATH", "SECRET_KEY")  # variables
pytestmark = pytest.mark.one_database


@pytest.fixture(scope="module")
def authz(tmp_path_factory) -> Path:
    """The command, installed from a wheel in an environment of its own."""
    if tuple(map(int, version("setuptools").split(".")[:2])) < (70, 1):  # the first that builds wheels alone
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse('setuptools 70.1 is needed: pip install -e ".[test]"')
    folder = tmp_path_factory.mktemp("wheel")
    source, venv = folder / "source", folder / "venv"
    source.mkdir()
    for name in PARTS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "editor"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", source, "--wheel-dir", folder, folder=folder)
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", venv, folder=folder)
    (packages,) = venv.glob("lib/python*/site-packages")
    # Paths in it are searched, but .pth files there, such as that of this checkout, are not read.
    (packages / "others.pth").write_text("".join(f"{each}\n" for each in site.getsitepackages()))
    run(
        *pip, "--python", venv / "bin" / "python", "install", "--no-deps", "--no-index", "--no-compile", wheel,
        folder=folder,
    )  # fmt: skip
    return venv / "bin" / "authz"


def ended(*command: object, folder: Path) -> tuple[int, str, str]:
    variables = {name: text for name, text in os.environ.items() if name not in OF_THESE_TESTS}
    options = {"cwd": folder, "env": variables, "timeout": 300, "text": True, "capture_output": True}
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def run(*command: object, folder: Path) -> str:
    code, told, errors = ended(*command, folder=folder)
    assert code == 0, f"{command}: {told}{errors}"
    return told


def test_the_first_hour(authz, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()

    def tried(words: str) -> tuple[int, str, str]:
        return ended(authz, *words.split(), folder=folder)

    # Before anything exists, commands say what to do, and leave nothing.
    assert tried("--version")[0] == tried("help")[0] == 0
    code, _, told = tried("ask authorize User:ann read Document:plan")
    assert code == 1 and f"No database at {folder / 'authz.sqlite3'}" in told and "serve" in told
    assert list(folder.iterdir()) == []

    own = dict.fromkeys(OF_THESE_TESTS, "") | {"DJANGO_SETTINGS_MODULE": "authz_project.settings"}
    service = start_service(folder, "", "--workers", "1", program=authz, port=free_port(), **own)
    try:
        told = service.log.read_text()
        key = re.search(r"e_default_\w+", told)[0]
        assert str(folder / "authz.sqlite3") in told

        # A browser is led to a page to log in; a program to what there is.
        page = requests.get(f"{service.origin}/", headers=BROWSER, timeout=30)
        assert page.status_code == 200 and "/admin/login/" in page.url and "password" in page.text
        for link in requests.get(f"{service.origin}/", timeout=30).json().values():
            assert not link.startswith("/") or requests.get(f"{service.origin}{link}", timeout=30).ok, link
        nothing = requests.get(f"{service.origin}/nothing", headers=BROWSER, timeout=30)
        assert nothing.status_code == 404 and "Page not found" in nothing.text

        # A policy, its tests, and facts.
        (folder / "main.polar").write_text(POLICY)
        (folder / "facts.csv").write_text(FACTS)
        assert "2 of 2" in run(authz, "test_policy", "main.polar", folder=folder)
        assert tried("load_policy main.polar")[0] == 0
        assert tried("load_facts facts.csv --strict")[0] == 0

        # A mistake in each: a failing test is explained, a misspelled role and action are named.
        (folder / "wrong.polar").write_text(POLICY.replace('"edit" if "writer"', '"edit" if "reader"'))
        code, told, _ = tried("test_policy wrong.polar")
        assert code == 1 and "expected false, got true" in told and "by wrong.polar:8" in told
        (folder / "facts.csv").write_text(FACTS.replace("reader", "raeder"))
        code, _, told = tried("load_facts facts.csv --strict")
        assert code == 1 and "did you mean `reader`?" in told
        code, _, told = tried("ask authorize User:ann raed Document:plan")
        assert code == 2 and "did you mean `read`?" in told

        # Checks, an explanation, and a preview.
        assert tried("ask authorize User:ann read Document:plan")[:2] == (0, "allowed\n")
        assert tried("ask authorize User:ann edit Document:plan")[:2] == (1, "denied\n")
        code, told, _ = tried("ask authorize User:ann edit Document:plan --explain")
        assert code == 1 and 'has_role(User:ann, "writer", Document:plan)  no matching fact' in told
        (folder / "new.polar").write_text(POLICY.split("test ")[0].replace('"edit" if "writer"', '"edit" if "reader"'))
        code, told, _ = tried("preview_policy new.polar")
        assert 'allow(User:ann, "edit", Document:plan)' in told

        # A key is rotated; both are valid for a while.
        told = run(authz, "api_keys", "rotate", key.rpartition("_")[0], folder=folder)
        rotated = re.search(r"e_default_\w+_\w+", told.replace(key, ""))[0]
        for each in (key, rotated):
            answer = requests.post(
                f"{service.origin}/api/authorize", json=ASKED, headers={"Authorization": f"Bearer {each}"}, timeout=30
            )
            assert answer.json() == {"allowed": True}

        # A backup is made while it runs, and verified.
        assert tried("backup copy.sqlite3")[0] == 0
        code, told, errors = tried("verify copy.sqlite3")
        assert code == 0, told + errors
    finally:
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(60) == 0
    made_here = {"main.polar", "wrong.polar", "new.polar", "facts.csv", service.log.name}
    announced = {"authz.sqlite3", "authz.sqlite3.secret", ".gitignore", "copy.sqlite3", "copy.sqlite3.secret"}
    of_sqlite = {"authz.sqlite3-wal", "authz.sqlite3-shm"}
    assert {path.name for path in folder.iterdir()} - made_here - of_sqlite == announced

    # Nothing of it is committed by mistake.
    run("git", "init", "--quiet", folder=folder)
    added = set(re.findall(r"add '(.*)'", run("git", "add", "--dry-run", ".", folder=folder)))
    assert added - made_here == {".gitignore"}
