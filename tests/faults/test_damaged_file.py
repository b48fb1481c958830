"""An SQLite file that is no longer whole: nothing is served from it, and it is said what to do."""

import os
import sqlite3
import subprocess
from contextlib import closing

import pytest

from tests.authz_project.test_serve import refusal
from tests.authz_project.test_start import manage
from tests.faults.worlds import fill
from tests.service import start_service

PAGE = 4096


def garbage(whole: bytes) -> bytes:
    return b"x" * len(whole)


def without_head(whole: bytes) -> bytes:
    return b"\0" * 100 + whole[100:]


def cut_in_half(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def with_a_hole(whole: bytes) -> bytes:
    """In the tables of facts, which nobody reads at the start."""
    middle = len(whole) // 2 // PAGE * PAGE
    return whole[:middle] + b"\xa5" * PAGE * 8 + whole[middle + PAGE * 8 :]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    manage(folder, f"sqlite:///{folder / 'a.sqlite3'}", "migrate")
    with closing(sqlite3.connect(folder / "a.sqlite3")) as database:
        database.execute("CREATE TABLE much (a, b)")
        database.executemany("INSERT INTO much VALUES (?, ?)", [(number, "x" * 500) for number in range(2_000)])
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return (folder / "a.sqlite3").read_bytes()


@pytest.mark.parametrize("damaged", [garbage, without_head, cut_in_half, with_a_hole])
def test_no_server_starts_on_it(tmp_path, whole, damaged):
    path = tmp_path / "a.sqlite3"
    path.write_bytes(damaged(whole))
    told = refusal(tmp_path, "--workers", "1", DATABASE_URL=f"sqlite:///{path}")
    assert f"{path} is corrupt (" in told and "restore a backup" in told
    assert len(told.strip().splitlines()) == 1
    assert path.read_bytes() == damaged(whole), "what is left of it is left for whoever can mend it"


def test_a_file_that_cannot_be_written_is_said_to_be_so(tmp_path):
    folder = tmp_path / "read-only"
    folder.mkdir()
    url = f"sqlite:///{folder / 'a.sqlite3'}"
    manage(tmp_path, url, "migrate")
    with read_only(folder):
        told = refusal(tmp_path, "--workers", "1", DATABASE_URL=url, SECRET_KEY="9f2c1b7a4e8d6035f1a2b3c4d5e6f708")
    assert len(told.strip().splitlines()) == 1
    assert "needs write access" in told or "is read-only" in told or "readonly" in told, told


class read_only:
    """A folder that cannot be written, even by root; skips where this user cannot make one so."""

    def __init__(self, folder):
        self.folder, self.is_mounted = folder, False

    def __enter__(self):
        if os.getuid() != 0:
            self.folder.chmod(0o500)
            return
        for options in (["--bind", self.folder], ["-o", "remount,ro,bind"]):
            if subprocess.run(["mount", *options, self.folder], capture_output=True).returncode:
                self.__exit__()
                pytest.skip("root may not mount here, and may write everything")
            self.is_mounted = True

    def __exit__(self, *_):
        if self.is_mounted:
            subprocess.run(["umount", self.folder], check=False)
        else:
            self.folder.chmod(0o700)


@pytest.mark.long
def test_what_is_damaged_while_it_is_served_grants_nothing(tmp_path):
    """Each question is answered as before, from what a process has in memory, or with an error that says so."""
    path = tmp_path / "a.sqlite3"
    service = start_service(tmp_path, f"sqlite:///{path}", "--dev", "--workers", "1", ANSWER_CACHE="0")
    client = service.client()
    fill(client)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(os.urandom(PAGE * (pages - 1)))
    told = []
    for number in range(40):
        body = {"actor_type": "User", "actor_id": "nobody", "action": "read", "resource_type": "Doc"}
        answer = client.post("/authorize", {**body, "resource_id": f"d{number}", "context_facts": []})
        told.append(answer.status_code)
        assert answer.status_code in (200, 401, 500, 503), answer.text
        assert answer.json().get("allowed") is not True
    stored = client.post("/facts", {"predicate": "change", "args": [{"type": "Number", "id": "1"}]})
    assert stored.status_code in (500, 503) and "corrupt" in stored.json()["message"], stored.text
    assert "Traceback" not in service.log.read_text()
    service.stop()
