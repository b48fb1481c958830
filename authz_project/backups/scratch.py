"""Try a copy in a scratch database, from a child process: this process is configured for another database."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Any

import authz_project
from authz_project.backups.dump_call import conninfo, has_key_password, password_of
from authz_project.backups.programs import line_of, program, run
from authz_project.schema_state import APPLIED, SchemaState, state_of

SIGNS_NOTHING = "a process that lets nobody log in needs no secret"


class CannotRestore(Exception):
    """Why the copy is in no database."""


def looked_at(url: str) -> tuple[bool, str]:
    """Migrate the database at the URL and check it; return whether it is good, and the report."""
    failed = _run(url, "migrate", "--verbosity", "0")
    if failed.returncode:
        return False, f"WRONG  upgrade: {_last_line(failed.stderr)}"
    found = _run(url, "check_database")
    if not found.stdout:
        return False, f"WRONG  contents: {_last_line(found.stderr)}"
    return found.returncode == 0, found.stdout.rstrip("\n")


def _run(url: str, *command: str) -> CompletedProcess[str]:
    root = str(Path(authz_project.__file__).parents[1])
    variables = {
        "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "authz_project.settings", "SECRET_KEY": SIGNS_NOTHING,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])), "STATEMENT_TIMEOUT": "0",
        "DATABASE_REPLICA_URL": "",
    }  # fmt: skip
    return run([sys.executable, "-m", "django", *command], variables)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ended without a word"])[-1][:300]


# ---- SQLite --------------------------------------------------------------------------------------------------------


def sqlite_looked_at(file: Path) -> tuple[bool, str]:
    """Do as `looked_at`, with a second copy in a temporary folder: a check migrates what it reads."""
    with TemporaryDirectory(prefix="authz-") as folder:
        copied = Path(folder) / "copy.sqlite3"
        try:
            shutil.copyfile(file, copied)
        except OSError as reason:
            raise CannotRestore(f"it cannot be tried in `{folder}`: {reason.strerror}; TMPDIR names another") from None
        return looked_at(f"sqlite:///{copied}")


# ---- PostgreSQL ----------------------------------------------------------------------------------------------------


def restore_dump(file: Path, config: Mapping[str, Any]) -> SchemaState:
    """Restore a dump into an empty database, and return the state of its schema."""
    restoring = program("pg_restore")
    if restoring is None:
        raise CannotRestore("there is no pg_restore here")
    if has_key_password(config):
        raise CannotRestore(
            "pg_restore has no variable for sslpassword: put it into the file of a service, and ?service=NAME here"
        )
    if tables := _tables(config):
        raise CannotRestore(f"the database is not empty: it has {tables:,} tables; name one for nothing but this")
    how = ("--no-owner", "--no-privileges", "--exit-on-error")
    done = run([restoring.path, *how, f"--dbname={conninfo(config)}", file], password_of(config))
    if done.returncode:
        raise CannotRestore(f"pg_restore {restoring.version}: {line_of(done.stderr)}")
    return state_of(_rows(config, APPLIED))


def _tables(config: Mapping[str, Any]) -> int:
    number: int = _rows(config, "SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'")[0][0]
    return number


def _rows(config: Mapping[str, Any], statement: str) -> list[Any]:
    password = config.get("PASSWORD")
    psycopg = import_module("psycopg")  # only here: a copy of SQLite needs none of it
    try:
        with psycopg.connect(conninfo(config), **({"password": password} if password else {})) as database:
            return database.execute(statement).fetchall()
    except psycopg.Error as reason:
        raise CannotRestore(f"the database cannot be reached: {' '.join(str(reason).split())}") from None


