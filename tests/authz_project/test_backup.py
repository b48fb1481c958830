"""A copy of an SQLite file is whole, whoever writes meanwhile; and what is not whole is found out."""

import multiprocessing
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from pytest_django.plugin import blocking_manager_key

from authz_project import backups as archive
from authz_project.backups import BackupFailed, copy
from authz_project.management.commands import verify
from policy.core.clock import timeline
from tests.authz_project.test_upgrade import DUMP
from tests.conftest import connected, migrate
from tests.service import ROOT, Service, start_service

POLICY = """
actor User {}
resource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }
"""
SECRET = "only for these tests " * 3


def role(user: str) -> dict:
    args = [("User", user), ("String", "reader"), ("Doc", "d")]
    return {"predicate": "has_role", "args": [{"type": type_name, "id": text} for type_name, text in args]}


def may_read(user: str) -> dict:
    return {"actor_type": "User", "actor_id": user, "action": "read", "resource_type": "Doc", "resource_id": "d"}


def prepared(folder: Path) -> Path:
    """A database with a policy, facts and history."""
    url = f"sqlite:///{folder / 'authz.sqlite3'}"
    (folder / "main.polar").write_text(POLICY)
    lines = [f"has_role,User,u{number},String,reader,Doc,d" for number in range(500)]
    (folder / "facts.csv").write_text("\n".join(lines))
    manage(folder, url, "migrate", "-v0")
    manage(folder, url, "api_keys", "create")
    manage(folder, url, "load_policy", "main.polar")
    manage(folder, url, "load_facts", "facts.csv", "--format", "csv")
    manage(folder, url, "delete_facts", "has_role(User:u7, _, Doc:d)")
    return folder / "authz.sqlite3"


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> Path:
    return prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def good(database, tmp_path) -> Path:
    """A copy, for a test to spoil."""
    copy(database, tmp_path / "copy.sqlite3", overwrite=False)
    return tmp_path / "copy.sqlite3"


def manage(folder: Path, url: str, *arguments: str, code: int = 0) -> str:
    """What a command says, on either stream."""
    done = subprocess.run(
        [sys.executable, ROOT / "manage.py", *arguments], cwd=folder, capture_output=True, text=True, timeout=120,
        env=os.environ | {"DATABASE_URL": url, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def verified(file: Path, code: int = 0) -> str:
    """What `verify` says: called here, since it has other processes look at the copy."""
    told, ended = StringIO(), 0
    try:
        call_command("verify", file, stdout=told, stderr=told)
    except CommandError as reason:
        ended = reason.returncode
        told.write(str(reason))
    except SystemExit as reason:
        ended = reason.code
    assert ended == code, told.getvalue()
    return told.getvalue()


# ---- what is made ----------------------------------------------------------------------------------------------------


def test_a_copy_belongs_to_its_owner_and_has_the_secret_beside_it(database, good):
    secret = archive.secret_file(good)
    assert secret.read_text() == archive.secret_file(database).read_text()
    for path in (good, secret):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(path.name for path in good.parent.iterdir()) == ["copy.sqlite3", "copy.sqlite3.secret"]


def test_a_copy_replaces_nothing_unless_told(database, good):
    before = good.read_bytes()
    good.write_bytes(b"precious")
    with pytest.raises(BackupFailed, match="already exists"):
        copy(database, good, overwrite=False)
    assert good.read_bytes() == b"precious"
    copy(database, good, overwrite=True)
    assert good.read_bytes() == before
    good.unlink()
    with pytest.raises(BackupFailed, match=r"copy\.sqlite3\.secret` already exists"):
        copy(database, good, overwrite=False)


def test_a_secret_of_another_copy_does_not_stay_beside_a_new_one(database, good, tmp_path):
    """Where SECRET_KEY is set, there is none beside the database."""
    (tmp_path / "live").mkdir()
    alone = tmp_path / "live" / "authz.sqlite3"
    shutil.copy(database, alone)
    copy(alone, good, overwrite=True)
    assert not archive.secret_file(good).exists()


def test_what_a_killed_copy_left_is_in_nobodys_way(database, tmp_path):
    """In containers, every process has the same number."""
    (tmp_path / f".copy.sqlite3.{os.getpid()}.part").touch()
    copy(database, tmp_path / "copy.sqlite3", overwrite=False)
    assert (tmp_path / "copy.sqlite3").exists()


def test_who_is_faster_keeps_the_place(database, tmp_path):
    """The place is looked at before, and again when the copy is put there."""
    place = tmp_path / "copy.sqlite3"

    def make_it_first(*_: object) -> None:
        place.write_bytes(b"precious")

    with mock.patch.object(archive, "_copy_pages", make_it_first), pytest.raises(BackupFailed, match="already exists"):
        copy(database, place, overwrite=False)
    assert place.read_bytes() == b"precious"
    assert [path.name for path in tmp_path.iterdir()] == [place.name], "the secret is not left behind"


def test_a_copy_that_cannot_be_put_leaves_the_former_secret(database, good):
    secret, put = archive.secret_file(good), archive._put
    secret.write_text("of then")
    before = good.read_bytes()

    def only_secrets(draft: Path, place: Path, overwrite: bool) -> None:
        if place == good:
            raise PermissionError(1, "Operation not permitted")
        put(draft, place, overwrite)

    with mock.patch.object(archive, "_put", only_secrets), pytest.raises(BackupFailed, match="not permitted"):
        copy(database, good, overwrite=True)
    assert (good.read_bytes(), secret.read_text()) == (before, "of then")


def test_places_where_no_copy_can_be_are_refused(database, tmp_path):
    (tmp_path / "used.sqlite3-wal").touch()
    for place, reason in (
        (database, "is the database itself"),
        (archive.secret_file(database), "is the database itself, or its secret"),
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "copy", "does not exist. Create it first"),
        (tmp_path / "used.sqlite3", "belongs to a database in use"),
    ):
        with pytest.raises(BackupFailed, match=reason):
            copy(database, place, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["used.sqlite3-wal"]


def test_a_copy_that_is_refused_leaves_the_gitignore_alone(database, good, tmp_path):
    ignored = good.parent / ".gitignore"
    ignored.write_text("*.log\n")
    try:
        with pytest.raises(BackupFailed, match="already exists"):
            copy(database, good, False)
        assert ignored.read_text() == "*.log\n"
        copy(database, good, True)
        assert ignored.read_text() == f"*.log\n/{good.name}\n/{good.name}.secret\n"
    finally:
        ignored.unlink()


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), sqlite3.OperationalError("disk I/O")])
def test_a_copy_that_fails_leaves_nothing_behind(database, good, failure):
    before = good.read_bytes()
    failing = mock.patch.object(archive, "_flush", side_effect=failure)
    with failing, pytest.raises(BackupFailed, match="Backup failed"):
        copy(database, good, overwrite=True)
    assert sorted(path.name for path in good.parent.iterdir()) == ["copy.sqlite3", "copy.sqlite3.secret"]
    assert good.read_bytes() == before


def test_a_disk_that_is_full_at_the_last_moment_leaves_the_earlier_copy_whole(database, good):
    secret = archive.secret_file(good)
    secret.write_text("of then")
    before = good.read_bytes(), secret.read_text()
    for place in (1, 2):
        failing = [None] * (place - 1) + [OSError(28, "No space left on device")]
        flushing = mock.patch.object(archive, "_flush", side_effect=failing)
        with flushing, pytest.raises(BackupFailed, match="No space left"):
            copy(database, good, overwrite=True)
        assert (good.read_bytes(), secret.read_text()) == before


def test_how_far_it_is_is_told(database, tmp_path):
    shares: list[float] = []
    with mock.patch.object(archive, "PAGES_AT_ONCE", 8):
        copy(database, tmp_path / "copy.sqlite3", overwrite=False, progress=shares.append)
    assert len(shares) > 5 and shares == sorted(shares) and shares[-1] == 1.0


def test_the_command_says_what_it_made(database, tmp_path):
    url = f"sqlite:///{database}"
    said = manage(tmp_path, url, "backup", "copy.sqlite3")
    assert f"{tmp_path / 'copy.sqlite3'}: 0." in said and "copy.sqlite3.secret: the login secret" in said
    assert "already exists. Pass --overwrite to replace it" in manage(tmp_path, url, "backup", "copy.sqlite3", code=1)
    assert "No database at" in manage(tmp_path, f"sqlite:///{tmp_path / 'none'}", "backup", "b", code=1)
    assert not (tmp_path / "none").exists()


# ---- while others write ----------------------------------------------------------------------------------------------


@pytest.fixture
def written_to(tmp_path) -> Iterator[Service]:
    """A server whose facts change all the time: ann and ben are readers in turns, and one of them always is."""
    folder = tmp_path / "live"
    folder.mkdir()
    path = prepared(folder)
    service = start_service(folder, f"sqlite:///{path}", "--dev", "--workers", "1", SECRET_KEY=SECRET)
    client, over = service.client(), threading.Event()
    client.post("/batch", [{"inserts": [role("ann")]}]).raise_for_status()

    def write() -> None:
        here, there = "ann", "ben"
        while not over.is_set():
            client.post("/batch", [{"deletes": [role(here)]}, {"inserts": [role(there)]}]).raise_for_status()
            here, there = there, here

    writer = threading.Thread(target=write)
    writer.start()
    yield service
    over.set()
    writer.join()
    service.stop()


@pytest.mark.long
def test_a_copy_made_under_writes_answers_as_the_service_did_then(written_to, tmp_path):
    live, url = written_to.client(), f"sqlite:///{tmp_path / 'live' / 'authz.sqlite3'}"
    offsets = []
    for number in range(2):
        name = f"copy{number}.sqlite3"
        manage(tmp_path, url, "backup", name)
        verified(tmp_path / name)
        put_back = tmp_path / f"restored{number}"
        put_back.mkdir()
        for end in ("", ".secret"):
            shutil.copy(tmp_path / f"{name}{end}", put_back / f"authz.sqlite3{end}")
        restored = start_service(
            put_back, f"sqlite:///{put_back / 'authz.sqlite3'}", "--dev", "--workers", "1", SECRET_KEY=SECRET
        )
        try:
            client = restored.client()
            facts = client.get("/facts")
            asked = client.post("/authorize", may_read("ann"))
            offset = int(asked.headers["OsoOffset"])
            offsets.append(offset)
            assert in_order(facts.json()) == in_order(live.get("/facts", params={"as_of": offset}).json())
            readers = [user for user in ("ann", "ben") if client.post("/authorize", may_read(user)).json()["allowed"]]
            assert len(readers) == 1
            for user in ("ann", "ben", "u7", "u8"):
                then = live.post("/authorize", may_read(user) | {"as_of": offset}).json()
                assert client.post("/authorize", may_read(user)).json() == then
            changed = client.post("/batch", [{"inserts": [role("eve")]}])
            assert changed.headers["OsoOffset"] == str(offset + 1)
        finally:
            restored.stop()
    assert offsets == sorted(set(offsets))


def in_order(facts: list) -> list[str]:
    return sorted(map(repr, facts))


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_what_a_process_remembers_is_not_taken_for_what_is_put_back(api, tmp_path):
    """The same process goes on with a database that is put back under it, and another change has the same number."""
    api.post("/policy", {"src": POLICY})
    offset = int(api.post("/batch", [{"inserts": [role("ann")]}])["OsoOffset"])
    path = Path(connection.settings_dict["NAME"])
    copy(path, tmp_path / "copy.sqlite3", overwrite=False)

    def answers() -> list[bool]:
        for _ in range(3):  # the last ones are kept
            found = [api.post("/authorize", may_read(user)).json()["allowed"] for user in ("ann", "ben", "eve")]
        return found

    assert answers() == [True, False, False]
    api.post("/batch", [{"deletes": [role("ann")]}, {"inserts": [role("ben")]}])
    assert answers() == [False, True, False]
    connection.close()
    with closing(sqlite3.connect(tmp_path / "copy.sqlite3")) as kept, closing(sqlite3.connect(path)) as live:
        kept.backup(live)
    assert answers() == [True, False, False]
    assert int(api.post("/batch", [{"inserts": [role("eve")]}])["OsoOffset"]) == offset + 1
    assert answers() == [True, False, True]


# ---- what is found out -----------------------------------------------------------------------------------------------


def test_a_good_copy_is_told_to_be_good_and_stays_as_it_is(good):
    before = good.read_bytes()
    said = verified(good)
    assert "WRONG" not in said
    for line in (
        "ok     integrity: ", "ok     references: ", "ok     schema: up to date", "ok     secret: in ",
        "ok     facts of `default`: 499 stored and 1 past at revision 3",
        'ok     policy of `default`: version 1 compiles; User:u0 can "read" 1 Doc',
    ):  # fmt: skip
        assert line in said
    assert good.read_bytes() == before
    assert sorted(path.name for path in good.parent.iterdir()) == ["copy.sqlite3", "copy.sqlite3.secret"]


SPOILED = {
    "DELETE FROM authz_fact WHERE a0 = 'u1'": "498 are stored, but the revisions add up to 499",
    "UPDATE authz_policy_version SET source = 'actor'": "version 1 does not compile",
    "UPDATE authz_policy_version SET environment_id = 77": "row of authz_policy_version refers to a missing row of",
    "INSERT INTO django_migrations (app, name, applied) VALUES ('authz_facts', '0099_later', '2027-01-01')":
        "from a newer version, with the migrations authz_facts 0099",
    "DROP TABLE django_migrations": "not a database of this service",
}  # fmt: skip


@pytest.mark.parametrize("statement", SPOILED)
def test_what_does_not_agree_is_found(good, statement):
    with closing(sqlite3.connect(good)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute(statement)
        database.commit()
    said = verified(good, code=1)
    assert "WRONG" in said and SPOILED[statement] in said and "copy.sqlite3 is not consistent" in said


def test_a_copy_that_lost_bytes_is_found(good):
    whole = good.read_bytes()
    middle = len(whole) // 2 // 4096 * 4096
    for spoiled in (whole[:middle] + os.urandom(8192) + whole[middle + 8192 :], whole[: middle + 100], whole[:5000]):
        good.write_bytes(spoiled)
        assert "WRONG" in verified(good, code=1)


def test_what_is_no_copy_is_told_so(good):
    other = good.with_name("other")
    for text in (b"", b"SQLite format", b"-- a dump in words"):
        other.write_bytes(text)
        assert "is neither an SQLite database nor a dump" in verified(other, code=1)
    assert "cannot read `" in verified(good.with_name("nope"), code=1)
    Path(f"{good}-wal").write_bytes(b"x")
    assert "in use, or was copied by hand while in use" in verified(good, code=1)


def test_a_copy_of_an_older_form_is_good_as_well(tmp_path):
    old = tmp_path / "old.sqlite3"
    with closing(sqlite3.connect(old)) as database:
        database.executescript(DUMP)
    before = old.read_bytes()
    said = verified(old)
    assert "from an older version; `serve` will apply " in said
    assert "facts of `default`: 3 stored and 0 past at revision 3, known since revision 3" in said
    assert old.read_bytes() == before


def forked(url: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a copy of this process, which has imported all, and forgets what it knew of databases."""
    forking = multiprocessing.get_context("fork")
    here, there = forking.Pipe(duplex=False)

    def run() -> None:
        for forget in timeline._forgetting:
            forget()
        with connected(url):
            call_command(*command, stdout=(stream := StringIO()))
        there.send(stream.getvalue())

    process = forking.Process(target=run)
    process.start()
    there.close()
    said = here.recv() if here.poll(60) else ""
    process.join()
    return subprocess.CompletedProcess(command, process.exitcode, said, "see the error of this process")


@pytest.mark.long
def test_a_copy_of_each_earlier_form_is_upgraded(request, monkeypatch, tmp_path):
    """From the oldest on, one migration at a time: each was the last one of some version.

    The first and the last form are looked at by processes as `verify` starts them, and the others by quicker ones.
    """
    blocker = request.config.stash[blocking_manager_key]
    old = tmp_path / "old.sqlite3"
    with closing(sqlite3.connect(old)) as database:
        database.executescript(DUMP)
        applied = set(database.execute("SELECT app, name FROM django_migrations"))
    graph = MigrationLoader(None).graph
    every = dict.fromkeys(step for leaf in sorted(graph.leaf_nodes()) for step in graph.forwards_plan(leaf))
    steps = [step for step in every if step not in applied]
    assert len(steps) >= 10
    for number, (app, name) in enumerate(steps, 1):
        left = len(steps) - number
        with blocker.unblock():
            migrate(f"sqlite:///{old}", app, name)
            if number > 1 and left:
                monkeypatch.setattr(verify, "_run", forked)
            else:
                monkeypatch.undo()
            call_command("verify", old, stdout=(stream := StringIO()))
        said = stream.getvalue()
        assert ("from an older version; `serve` will apply " in said) is bool(left), name
        assert "facts of `default`: 3 stored and 0 past at revision 3, known since revision 3" in said, name
