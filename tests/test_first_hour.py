"""The wheel, installed alone: nothing of the checkout is missing. And the first hour of a new user with it."""

import fcntl
import json
import os
import re
import signal
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
from tests.browsing import PERSON, Browser, driver
from tests.postgresql import free_port
from tests.service import ROOT, Client, start_service
from tests.test_pages import PHONE, WIDE, look, overhanging

__all__ = ["driver"]  # a fixture
PARTS = ("authz_project", "checks", "facts", "localsql", "policy")
SOURCES_OF_ASSETS = "policy/editor/"  # from which what is in `static` was built
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
pytestmark = pytest.mark.long


def ended(*command: object, folder: Path, **variables: str) -> tuple[int, str, str]:
    variables |= {name: text for name, text in os.environ.items() if name not in OF_THESE_TESTS}
    options = {"cwd": folder, "env": variables, "timeout": 1800, "text": True, "capture_output": True}
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def run(*command: object, folder: Path, **variables: str) -> str:
    code, told, errors = ended(*command, folder=folder, **variables)
    assert code == 0, f"{command}: {told}{errors}"
    return told


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
            run(ROOT / ".ci" / "release", folder, folder / "venv", folder=ROOT)
            (folder / "is made").touch()
    (wheel,) = folder.glob("*.whl")
    return Installed(wheel, tmp_path_factory.mktemp("empty"), folder / "venv" / "bin" / "authz")


def test_a_release_lists_what_is_in_it(installed):
    folder = installed.wheel.parent
    (sources,) = folder.glob("*.tar.gz")
    assert sources.name == f"authz_project-{__version__}.tar.gz"
    pinned = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (folder / "requirements.txt").read_text(), re.MULTILINE))
    bill = json.loads((folder / "sbom.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "authz-project")
    listed = {re.sub("[-_.]+", "-", each["name"]).lower(): each["version"] for each in bill["components"]}
    assert listed == pinned and "django" in pinned
    assert {each["name"] for each in bill["components"] if not each.get("licenses")} <= {"ply"}  # which names none
    assert "://" not in re.sub("https?://(?:www.)?github.com", "", (folder / "requirements.txt").read_text())


def test_the_wheel_is_complete(installed):
    assert installed.wheel.name == f"authz_project-{__version__}-py3-none-any.whl"
    packed = set(zipfile.ZipFile(installed.wheel).namelist())
    tracked = set(run("git", "ls-files", *PARTS, folder=ROOT).splitlines())
    there = {name for name in tracked if (ROOT / name).exists() and not name.startswith(SOURCES_OF_ASSETS)}
    assert len(there) > 300
    assert sorted(there - packed) == []
    assert {name.split("/")[0] for name in packed} == {*PARTS, f"authz_project-{__version__}.dist-info"}


def test_the_sources_install_as_the_wheel_does(installed, tmp_path):
    (sources,) = installed.wheel.parent.glob("*.tar.gz")
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps")
    run(*install, "--target", tmp_path / "found", sources, folder=tmp_path)
    found = {str(path.relative_to(tmp_path / "found")) for path in (tmp_path / "found").rglob("*") if path.is_file()}
    packed = {name for name in zipfile.ZipFile(installed.wheel).namelist() if name.split("/")[0] in PARTS}
    assert packed and {name for name in found if name.split("/")[0] in PARTS} == packed
    own = (sys.executable, "-m", "pip", "--python", installed.authz.with_name("python"))
    assert "No broken requirements" in run(*own, "check", folder=tmp_path)  # by what the wheel itself says it needs


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


# What a person looks at in the admin, and what it shows.
LOOKED_AT = {
    "/admin/": "Health",
    "/admin/go/ask/?kind=authorize&actor=User:ann&action=edit&resource=Document:plan": "Why it was denied",
    "/admin/go/facts/": "1 fact",
    "/admin/go/policy/": "Tests (when published)",
    "/admin/go/preview/": "Preview impact",
    "/admin/go/keys/": "first key",
}
BACKGROUND = "return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)"

NAVIGATION = """const here = document.querySelector("#places .here").getBoundingClientRect();
return [document.getElementById("header").offsetHeight, here.left >= 0 && here.right <= innerWidth];"""
TABLE = "const table = document.querySelector('.results'); return table.scrollWidth <= table.clientWidth"
LAPTOP = (1280, 800)


def look_at_the_admin(person: Browser) -> None:
    """Log in, and open pages in both colours, on a screen and on a phone."""
    person.driver.get_log("browser")
    person.open("/admin/")
    person.write("#id_username", PERSON["DJANGO_SUPERUSER_USERNAME"])
    person.write("#id_password", PERSON["DJANGO_SUPERUSER_PASSWORD"])
    person.click("[type=submit]")
    person.shows("Health")
    for address, shown in LOOKED_AT.items():
        for size in (WIDE, PHONE):
            for scheme, is_dark in (("light", False), ("dark", True)):
                look(person, size, scheme)
                person.open(address)
                person.shows(shown)
                assert [*overhanging(person)] == [], (address, size)
                if size == PHONE:
                    height, is_shown = person.driver.execute_script(NAVIGATION)
                    assert height <= 90 and is_shown, f"{address}: two rows, with the page's own entry in view"
                assert (max(person.driver.execute_script(BACKGROUND)) < 100) is is_dark, (address, scheme)
    look(person, LAPTOP, "light")
    for address in ("/admin/go/keys/", "/admin/go/versions/"):
        person.open(address)
        person.one("#changelist-filter")
        assert person.driver.execute_script(TABLE), f"{address}: the filters make the table scroll"
    assert [each for each in person.driver.get_log("browser") if each["level"] == "SEVERE"] == []


def test_the_first_hour(installed, tmp_path, driver):
    authz, folder = installed.authz, tmp_path / "empty"
    folder.mkdir()

    def tried(words: str) -> tuple[int, str, str]:
        return ended(authz, *words.split(), folder=folder)

    # Before anything exists, commands say what to do, and leave nothing.
    assert tried("--version")[0] == tried("help")[0] == 0
    code, _, told = tried("ask authorize User:ann read Document:plan")
    assert code == 2 and f"No database at {folder / 'authz.sqlite3'}" in told and "serve" in told
    assert list(folder.iterdir()) == []

    own = dict.fromkeys(OF_THESE_TESTS, "") | {"DJANGO_SETTINGS_MODULE": "authz_project.settings"}
    service = start_service(folder, "", "--workers", "1", program=authz, port=free_port(), **own)
    try:
        told = service.log.read_text()
        key = re.search(r"e_default_\w+", told)[0]
        assert str(folder / "authz.sqlite3") in told
        assert "created   authz.sqlite3, authz.sqlite3.secret, .gitignore\n" in told

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

        # A login, and the admin in a browser.
        run(authz, "createsuperuser", "--noinput", folder=folder, **PERSON)
        assert tried("api_keys create tests --environment staging --create-environment")[0] == 0
        (tmp_path / "pictures").mkdir()
        look_at_the_admin(Browser(driver, service, tmp_path / "pictures"))

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
