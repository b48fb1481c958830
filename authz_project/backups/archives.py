"""A copy as it lies on the disk: what kind it is, and whether it is whole."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from authz_project.backups.backup_finding import BackupFinding, schema_finding, wrong
from authz_project.backups.programs import line_of, program, run
from authz_project.backups.sqlite_copy import secret_of
from authz_project.schema_state import APPLIED, state_of

SQLITE, POSTGRESQL = b"SQLite format 3\0", b"PGDMP"
TABLES = ("api_key", "environment", "fact", "policy_version", "signature")
_SHOWN = 3  # faults


class NotABackup(Exception):
    """A file that nobody here can have made."""


def kind_of(file: Path) -> bytes:
    """Return `SQLITE` or `POSTGRESQL`."""
    try:
        with file.open("rb") as opened:
            head = opened.read(16)
    except OSError as reason:
        raise NotABackup(f"`{file}` cannot be read: {reason.strerror}") from None
    for kind in (SQLITE, POSTGRESQL):
        if head.startswith(kind):
            return kind
    raise NotABackup(f"`{file}` is neither a copy of an SQLite database nor a dump by pg_dump --format=custom")


# ---- SQLite --------------------------------------------------------------------------------------------------------


def sqlite_findings(file: Path) -> Iterator[BackupFinding]:
    """Read every page of it. Nothing is written to it or beside it."""
    log = Path(f"{file}-wal")
    if log.exists() and log.stat().st_size:
        yield wrong("file", f"`{log}` is beside it: it is in use, or was copied by hand while it was")
        return
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            integrity = _integrity(database)
            yield integrity
            if not integrity.is_good:  # nothing that is read of it can be trusted
                return
            yield _references(database)
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'django_migrations'").fetchone():
                yield wrong("form", "it is no database of this service")
                return
            yield schema_finding(state_of(database.execute(APPLIED).fetchall()))
    except sqlite3.Error as reason:
        yield wrong("file", f"it cannot be read to its end: {reason}")
        return
    secret = secret_of(file)
    told = f"in `{secret}`" if secret.exists() else "not beside it; where SECRET_KEY is set, that is the secret"
    yield BackupFinding("secret", told)


def _integrity(database: sqlite3.Connection) -> BackupFinding:
    found = [text for (text,) in database.execute(f"PRAGMA integrity_check({_SHOWN})")]
    if found != ["ok"]:
        return wrong("integrity", "; ".join(" ".join(text.split()) for text in found)[:500])
    pages, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return BackupFinding("integrity", f"{pages:,} pages, {pages * size / 1e6:,.1f} MB")


def _references(database: sqlite3.Connection) -> BackupFinding:
    found = database.execute("PRAGMA foreign_key_check").fetchmany(_SHOWN)
    if found:
        lost = (f"a row of {table} names one of {other} that is not there" for table, _, other, _ in found)
        return wrong("references", "; ".join(lost))
    return BackupFinding("references", "every row that is named is there")


# ---- PostgreSQL ----------------------------------------------------------------------------------------------------


def dump_findings(file: Path) -> Iterator[BackupFinding]:
    """Read a dump to its end, and its table of contents. Whether its rows make sense is not checked."""
    restoring = program("pg_restore")
    if restoring is None:
        yield wrong("file", "there is no pg_restore here to read it: install PostgreSQL's client programs")
        return
    read = run([restoring.path, "--list", file])
    if read.returncode:
        yield wrong("file", f"pg_restore {restoring.version} cannot read it: {line_of(read.stderr)}")
        return
    whole = run([restoring.path, f"--file={os.devnull}", file])  # the table stands first, also in one that is cut off
    if whole.returncode:
        yield wrong("file", f"pg_restore {restoring.version} cannot read it to its end: {line_of(whole.stderr)}")
        return
    lines = read.stdout.splitlines()
    made = [line.strip("; ") for line in lines if line.startswith(";") and "Dumped" in line]
    yield BackupFinding("file", f"pg_restore {restoring.version} reads it; {', '.join(made)}")
    data = {line.split()[-2] for line in lines if " TABLE DATA " in line}
    if missing := [name for name in TABLES if name not in data]:
        yield wrong("tables", f"there are no rows of {', '.join(missing)} in it: it is of another database, or a part")
    else:
        yield BackupFinding("tables", f"{len(data)} of them, with rows")
