"""PostgreSQL is dumped by its own program: the call that is told works as it stands, and its dump is looked at."""

import os
import secrets
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from unittest import mock

import psycopg
import pytest
from django.core.management import CommandError

from authz_project import backups as archive
from authz_project.backups import DumpProgram, dump_findings
from authz_project.management.commands.backup import Command
from authz_project.management.commands.verify import BackupFailed, restore_dump, scratch_config
from authz_project.settings import database_from_url
from tests.authz_project.test_backup import POLICY
from tests.service import ROOT

URL = "postgres://ann:it%27s%20me@db.example.org:5433/facts?sslmode=require"


@pytest.fixture(scope="module")
def filled(migrated_urls, tmp_path_factory) -> str:
    url, folder = migrated_urls("postgresql", f"dumped_{secrets.token_hex(4)}"), tmp_path_factory.mktemp("dumped")
    (folder / "main.polar").write_text(POLICY)
    (folder / "facts.csv").write_text("has_role,User,ann,String,reader,Doc,d")
    manage(folder, url, "load_policy", "main.polar")
    manage(folder, url, "load_facts", "facts.csv", "--format", "csv")
    return url


def manage(folder: Path, url: str, *arguments: str, code: int = 0, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, ROOT / "manage.py", *arguments], cwd=folder, capture_output=True, text=True, timeout=120,
        env=os.environ | {"DATABASE_URL": url, "PYTHONPATH": str(ROOT), "SECRET_KEY": "x" * 40} | variables,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


# ---- the call --------------------------------------------------------------------------------------------------------


def words_of(call: str) -> list[str]:
    return shlex.split(call.removeprefix("(umask 077; ").removesuffix(")"))


def test_the_call_says_where_the_database_is_and_no_password():
    call = words_of(archive.dump_call(database_from_url(f"{URL}&sslpassword=secret"), Path("a file"), overwrite=True))
    call, named = call[: call.index("&&")], call[call.index("&&") + 1 :]
    assert call[0] == "pg_dump" and "--file=a file.part" in call and "--format=custom" in call
    assert named == ["mv", "--", "a file.part", "a file"]
    where = dict(part.split("=", 1) for part in call[-1].removeprefix("--dbname=").split())
    assert where == {
        "host": "db.example.org", "port": "5433", "user": "ann", "dbname": "facts", "sslmode": "require",
    }  # fmt: skip
    assert "me" not in " ".join(call).replace("name", "")
    assert archive.has_key_password(database_from_url(f"{URL}&sslpassword=secret"))
    assert archive.password_of(database_from_url(URL)) == {"PGPASSWORD": "it's me"}
    assert archive.password_of(database_from_url("postgres://ann@db/facts")) == {}


@pytest.mark.parametrize("name", ["facts", "two words", "it's", "back\\slash", "a'b\\c d"])
def test_names_are_read_as_they_are(name):
    assert psycopg.conninfo.conninfo_to_dict(archive.conninfo({"NAME": name}))["dbname"] == name


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_program_that_is_older_than_the_server_will_not_do(db, capsys):
    def backup(found: DumpProgram | None) -> None:
        with mock.patch("authz_project.management.commands.backup.program", lambda name: found):
            Command().handle(file=Path("dump"), overwrite=True)

    backup(DumpProgram("pg_dump", 99, "99.1"))
    assert "pg_dump 99.1 can dump PostgreSQL " in capsys.readouterr().err
    old = DumpProgram("pg_dump", 9, "9.6")
    for found, reason in ((old, "pg_dump 9.6 cannot dump"), (None, "pg_dump is not installed")):
        with pytest.raises(CommandError, match=reason):
            backup(found)
        assert capsys.readouterr().out.startswith("(umask 077; pg_dump --format=custom")


# ---- the dump --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_dump_is_made_looked_at_restored_and_asked(filled, database_urls, tmp_path):
    if archive.program("pg_dump") is None or archive.program("pg_restore") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("pg_dump is not installed")
    told = manage(tmp_path, filled, "backup", "facts.dump").splitlines()
    assert "SECRET_KEY is not in the backup. Back it up separately." in told
    subprocess.run(told[0], shell=True, cwd=tmp_path, check=True, timeout=120)
    assert stat.S_IMODE((tmp_path / "facts.dump").stat().st_mode) == 0o600
    assert "already exists. Pass --overwrite" in manage(tmp_path, filled, "backup", "facts.dump", code=1)
    assert subprocess.run(told[0], shell=True, cwd=tmp_path, timeout=120).returncode == 1, (
        "nor does the call replace it"
    )
    said = manage(tmp_path, filled, "verify", "facts.dump")
    assert "ok     file: pg_restore " in said and "Dumped by pg_dump version: " in said and "ok     tables: " in said
    assert "contents were not verified" in said

    empty = database_urls("postgresql", f"scratch_{secrets.token_hex(4)}")
    said = manage(tmp_path, filled, "verify", "facts.dump", "--database", "${EMPTY}", EMPTY=empty)
    assert "WRONG" not in said
    assert "ok     facts of `default`: 1 stored and 0 past at revision 2" in said
    assert 'version 1 compiles; User:ann can "read" 1 Doc' in said
    assert "The database is not empty" in manage(tmp_path, filled, "verify", "facts.dump", "--database", empty, code=1)
    in_use = manage(tmp_path, filled, "verify", "facts.dump", "--database", filled, code=1)
    assert "--database is the database in use" in in_use

    whole = (tmp_path / "facts.dump").read_bytes()
    (tmp_path / "half.dump").write_bytes(whole[:-40])
    other = database_urls("postgresql", f"scratch_{secrets.token_hex(4)}")
    for more in ((), ("--database", other)):
        assert "cannot read all of it" in manage(tmp_path, filled, "verify", "half.dump", *more, code=1)
    failing = manage(tmp_path, f"{filled}_not", "backup", "facts.dump", "--overwrite", code=1)
    assert subprocess.run(failing.splitlines()[0], shell=True, cwd=tmp_path, timeout=120).returncode
    assert (tmp_path / "facts.dump").read_bytes() == whole, "what cannot be made replaces nothing"


@pytest.mark.long
def test_the_dump_of_a_space_is_verified(filled, database_urls, tmp_path):
    if archive.program("pg_dump") is None or archive.program("pg_restore") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("pg_dump is not installed")
    url = database_urls("postgresql", f"spaced_{secrets.token_hex(4)}", filled)
    manage(tmp_path, url, "spaces", "create", "europe")
    manage(tmp_path, url, "spaces", "add", "acme", "europe")
    (tmp_path / "main.polar").write_text(POLICY)
    (tmp_path / "facts.csv").write_text("has_role,User,ben,String,reader,Doc,d")
    manage(tmp_path, url, "load_policy", "main.polar", "--environment", "acme")
    manage(tmp_path, url, "load_facts", "facts.csv", "--format", "csv", "--environment", "acme")
    for name, more in (("europe", ("--space", "europe")), ("all", ())):
        told = manage(tmp_path, url, "backup", f"{name}.dump", *more).splitlines()
        subprocess.run(told[0], shell=True, cwd=tmp_path, check=True, timeout=120)

    def verified(name: str, code: int = 0) -> str:
        empty = database_urls("postgresql", f"scratch_{secrets.token_hex(4)}")
        return manage(tmp_path, url, "verify", f"{name}.dump", "--database", empty, code=code)

    of_space, of_all = verified("europe"), verified("all")
    assert "WRONG" not in of_space and "of `default`" not in of_space
    assert "ok     facts of `acme`: 1 stored and 0 past at revision 2" in of_space
    assert 'version 1 compiles; User:ben can "read" 1 Doc' in of_space
    assert "WRONG" not in of_all and "facts of `default`: 1 stored" in of_all
    assert "facts of `acme` (europe): 1 stored" in of_all

    with psycopg.connect(url, autocommit=True) as database:
        database.execute("DELETE FROM europe.authz_fact")
        elsewhere = "INSERT INTO authz_space (name, server, number, is_ready, created_at) VALUES"
        database.execute(f"{elsewhere} ('far', 'eu', 2, true, now())")
    for name, more in (("europe", ("--space", "europe")), ("all", ())):
        told = manage(tmp_path, url, "backup", f"{name}.dump", "--overwrite", *more).splitlines()
        subprocess.run(told[0], shell=True, cwd=tmp_path, check=True, timeout=120)
    assert "WRONG  facts of `acme`: 0 are stored" in verified("europe", code=1)
    assert "WRONG  facts of `acme` (europe): 0 are stored" in verified("all", code=1)  # which is all of it


def test_a_dump_that_cannot_be_read_is_told(tmp_path):
    broken = tmp_path / "broken.dump"
    broken.write_bytes(b"PGDMP" + b"\0" * 100)
    assert [finding.is_good for finding in dump_findings(broken)] == [False]
    with mock.patch("authz_project.backups.program", lambda name: None):
        assert "pg_restore is not installed. Install PostgreSQL's client programs." in next(dump_findings(broken)).text


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("sqlite:///scratch.sqlite3", "must be the URL of a PostgreSQL database"),
        ("nonsense", "--database must begin with"),
        ("postgres://nobody@127.0.0.1:1/none", "Cannot reach the database"),
    ],
)
def test_a_database_to_restore_into_must_be_one(tmp_path, url, reason):
    with pytest.raises((BackupFailed, CommandError), match=reason):
        restore_dump(tmp_path / "any.dump", scratch_config(url))
