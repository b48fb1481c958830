"""Create backups of the database, and inspect backup files."""

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from authz_project.database import APPLIED, Migration, SchemaState, state_of
from authz_project.secret_key import ignore_in_git, is_in_repository
from authz_project.settings import secret_file
from policy.errors import AuthzError, one_line
from policy.files import shown_name, why

# ---- findings about a backup, or about the database in it: one line each ------------------------------------------


class BackupFinding(NamedTuple):
    """The subject of a check, and its result."""

    what: str
    text: str
    is_good: bool = True

    def __str__(self) -> str:
        return f"{'ok' if self.is_good else 'WRONG':<5}  {self.what}: {self.text}"


def wrong(what: str, text: str) -> BackupFinding:
    return BackupFinding(what, text, is_good=False)


def schema_finding(state: SchemaState) -> BackupFinding:
    """Compare the migrations of a database with this program's."""
    if state.unknown:
        return wrong("schema", f"from a newer version, with the migrations {_listed(state.unknown)}")
    if state.missing:
        older = f"from an older version; `serve` will apply {_listed(state.missing)}"
        return BackupFinding("schema", older)
    return BackupFinding("schema", "up to date")


def _listed(migrations: Iterable[Migration]) -> str:
    return ", ".join(f"{app} {name[:4]}" for app, name in migrations)


# ---- PostgreSQL's client programs, as installed on this machine ---------------------------------------------------


class DumpProgram(NamedTuple):
    """`pg_dump` or `pg_restore`."""

    path: str
    major: int
    version: str


def program(name: str) -> DumpProgram | None:
    """Return the program that a shell would find; None if there is none that reports its version."""
    path = shutil.which(name)
    if path is None:
        return None
    found = re.search(r"\) (\d+)(\S*)", run([path, "--version"]).stdout)
    return DumpProgram(path, int(found[1]), f"{found[1]}{found[2]}") if found else None


def run(call: Sequence[str | Path], variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit status. Its arguments are not interpreted by a shell."""
    environment = os.environ | (variables or {})
    return subprocess.run(call, env=environment, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603


class BackupFailed(AuthzError):
    """A backup was not made or not restored, or the file is none; the message says why. No file is left behind."""


ALREADY_EXISTS = "`{}` already exists. Pass --overwrite to replace it."


# ---- dump call ----------------------------------------------------------------------------------------------------
# The exact commands with which PostgreSQL's programs dump and restore a database, without a password.

# The connection options that say where the database is and how to reach it. The password of a key file is not among
# them, because process lists would show it.
_OF_LIBPQ = re.compile(
    r"ssl(?!password$)\w*|channel_binding|gss\w*|krbsrvname|require_auth|requirepeer|service|passfile|hostaddr|"
    r"target_session_attrs|load_balance_hosts"
)

_PARTS = {"host": "HOST", "port": "PORT", "user": "USER", "dbname": "NAME"}


def conninfo(config: Mapping[str, Any]) -> str:
    """Return the connection string of a database from Django's settings, for libpq, without the password."""
    named = {libpq: config.get(django) for libpq, django in _PARTS.items()}
    options = {name: value for name, value in (config.get("OPTIONS") or {}).items() if _OF_LIBPQ.fullmatch(name)}
    return " ".join(f"{name}={_quoted(str(value))}" for name, value in {**named, **options}.items() if value)


def _quoted(value: str) -> str:
    if re.fullmatch(r"[^\s'\\]+", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def dump_call(config: Mapping[str, Any], file: Path, overwrite: bool, schema: str = "") -> str:
    """Return a shell command, for the whole database or one schema.

    The dump is readable by its owner only, and gets its name once it is complete.
    """
    if file.exists() and not overwrite:
        raise BackupFailed(ALREADY_EXISTS.format(file))
    how, part = ["--format=custom", "--no-owner", "--no-privileges"], file.with_name(f"{file.name}.part")
    how += [f"--schema={schema}"] if schema else []
    guard = [] if overwrite else [["test", "!", "-e", str(file)]]
    dump = ["pg_dump", *how, f"--file={part}", f"--dbname={conninfo(config)}"]
    return f"(umask 077; {' && '.join(map(shlex.join, [*guard, dump, ['mv', '--', str(part), str(file)]]))})"


def has_key_password(config: Mapping[str, Any]) -> bool:
    """Return whether the connection's client key is encrypted; libpq has no environment variable for its password."""
    return bool((config.get("OPTIONS") or {}).get("sslpassword"))


def password_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variable that passes the password to a client program, if there is one."""
    return {"PGPASSWORD": str(config["PASSWORD"])} if config.get("PASSWORD") else {}


# ---- SQLite backup ------------------------------------------------------------------------------------------------
# Copy an SQLite file that is in use: a consistent snapshot, which appears only once it is safely on disk.
#
# The copy is made under a temporary name in the target folder, readable by its owner only. It is read in a single
# transaction, so writers neither wait for it nor make it restart; the write-ahead log grows meanwhile.

PAGES_AT_ONCE = 4096
ProgressCallback = Callable[[float], None]  # receives the share that is done
_OF_SQLITE = ("-journal", "-wal", "-shm")


def copy(source: Path, target: Path, overwrite: bool, progress: ProgressCallback = lambda share: None) -> None:
    """Copy the database, and the secret beside it. Raise `BackupFailed` with the reason on failure."""
    _refuse_place(source, target, overwrite)
    if is_in_repository(target.parent):
        ignore_in_git(target.parent, target.name, secret_file(target).name)
    try:
        with _draft_of(target) as database, _draft_of(secret_file(target)) as secret:
            _copy_pages(source, database, progress)
            kept = secret_file(source)
            has_secret = kept.exists()
            if has_secret:
                shutil.copyfile(kept, secret)
            for each in (database, secret):  # before replacing anything: the disk may not have enough space
                _flush(each)
            with _secret_put(secret, secret_file(target), overwrite) if has_secret else nullcontext():
                _put(database, target, overwrite)  # last: if it is there, the backup is complete
            if overwrite and not has_secret:  # the old secret belonged to the copy that was replaced
                secret_file(target).unlink(missing_ok=True)
            with suppress(OSError):  # not all file systems can flush folders
                _flush(target.parent)
    except (OSError, sqlite3.Error) as reason:
        raise BackupFailed(f"Backup failed; nothing was written: {_reason_text(reason)}") from None


def _refuse_place(source: Path, target: Path, overwrite: bool) -> None:
    if not target.parent.is_dir():
        raise BackupFailed(f"Folder `{target.parent}` does not exist. Create it first.")
    if target.is_dir():
        raise BackupFailed(f"`{target}` is a folder. Specify a file name.")
    there = [path for path in (target, secret_file(target)) if path.exists()]
    in_use = [path for path in (source, secret_file(source)) if path.exists()]
    if own := [path for path in there if any(map(path.samefile, in_use))]:
        raise BackupFailed(f"`{own[0]}` is the database itself, or its secret. Specify another file.")
    if there and not overwrite:
        raise BackupFailed(ALREADY_EXISTS.format(there[0]))
    if beside := [path for end in _OF_SQLITE if (path := Path(f"{target}{end}")).exists()]:
        raise BackupFailed(f"`{beside[0]}` belongs to a database in use at that location. Specify another file.")


@contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file beside the path; it is deleted at the end unless it was put there."""
    file, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)  # accessible by its owner only
    os.close(file)
    draft = Path(name)
    try:
        yield draft
    finally:
        for end in ("", *_OF_SQLITE):
            Path(f"{draft}{end}").unlink(missing_ok=True)


def _copy_pages(source: Path, draft: Path, progress: ProgressCallback) -> None:
    def tell(_: int, remaining: int, total: int) -> None:
        progress(1 - remaining / total if total else 1.0)

    with closing(sqlite3.connect(f"{source.as_uri()}?mode=rw", uri=True, isolation_level=None)) as database:
        database.execute("BEGIN")
        database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()  # takes the snapshot
        with closing(sqlite3.connect(draft, isolation_level=None)) as copied:
            copied.execute("PRAGMA synchronous = OFF")  # flushed once, at the end
            database.backup(copied, pages=PAGES_AT_ONCE, progress=tell, sleep=0.05)
        database.execute("ROLLBACK")


def _put(draft: Path, place: Path, overwrite: bool) -> None:
    if overwrite:
        draft.replace(place)
        return
    try:
        os.link(draft, place)  # fails if somebody else was faster
    except FileExistsError:
        raise BackupFailed(ALREADY_EXISTS.format(place)) from None
    except OSError:  # the file system has no hard links
        draft.replace(place)


@contextmanager
def _secret_put(draft: Path, place: Path, overwrite: bool) -> Iterator[None]:
    """Put the secret in its place. If what follows fails, put back the one that was there, or none."""
    with _draft_of(place) as former:
        was_there = place.exists()
        if was_there:
            shutil.copyfile(place, former)
        _put(draft, place, overwrite)
        try:
            yield
        except BaseException:
            if was_there:
                former.replace(place)
            else:
                place.unlink(missing_ok=True)
            raise


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _reason_text(reason: Exception) -> str:
    if isinstance(reason, OSError):
        return f"{reason.strerror or reason}{f' (`{reason.filename}`)' if reason.filename else ''}"
    return str(reason)


# ---- inspecting a backup file: its kind and integrity -------------------------------------------------------------

SQLITE, POSTGRESQL = b"SQLite format 3\0", b"PGDMP"
# By their names now, or without the prefix in backups of earlier versions.
TABLES = ("api_key", "authz_environment", "authz_fact", "authz_policy_version", "authz_signature")
_SHOWN = 3  # faults


def kind_of(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            head = opened.read(16)
    except OSError as reason:
        raise BackupFailed(f"cannot read `{shown_name(str(file))}`: {why(reason)}") from None
    for kind in (SQLITE, POSTGRESQL):
        if head.startswith(kind):
            return kind
    raise BackupFailed(f"`{file}` is neither an SQLite database nor a dump made by pg_dump --format=custom.")


# ---- SQLite --------------------------------------------------------------------------------------------------------


def sqlite_findings(file: Path) -> Iterator[BackupFinding]:
    """Read all pages of the file. Nothing is written to it or beside it."""
    log = Path(f"{file}-wal")
    if log.exists() and log.stat().st_size:
        yield wrong("file", f"`{log}` exists: the database is in use, or was copied by hand while in use")
        return
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            integrity = _integrity(database)
            yield integrity
            if not integrity.is_good:  # nothing else that is read from it can be trusted
                return
            yield _references(database)
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'django_migrations'").fetchone():
                yield wrong("schema", "not a database of this service")
                return
            state = state_of(database.execute(APPLIED).fetchall())
            if not state.is_current:  # else it is told when the copy has been migrated
                yield schema_finding(state)
    except sqlite3.Error as reason:
        yield wrong("file", f"incomplete or damaged: {reason}")
        return
    secret = secret_file(file)
    told = f"in `{secret}`" if secret.exists() else "no file; back up SECRET_KEY separately if it is set"
    yield BackupFinding("secret", told)


def _integrity(database: sqlite3.Connection) -> BackupFinding:
    found = [text for (text,) in database.execute(f"PRAGMA integrity_check({_SHOWN})")]
    if found != ["ok"]:
        return wrong("integrity", one_line("; ".join(found)))
    pages, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return BackupFinding("integrity", f"{pages:,} pages, {pages * size / 1e6:,.1f} MB")


def _references(database: sqlite3.Connection) -> BackupFinding:
    found = database.execute("PRAGMA foreign_key_check").fetchmany(_SHOWN)
    if found:
        lost = (f"a row of {table} refers to a missing row of {other}" for table, _, other, _ in found)
        return wrong("references", "; ".join(lost))
    return BackupFinding("references", "all intact")


# ---- PostgreSQL ----------------------------------------------------------------------------------------------------


def dump_findings(file: Path) -> Iterator[BackupFinding]:
    """Read a dump to its end, and its table of contents. The contents of its rows are not checked."""
    restoring = program("pg_restore")
    if restoring is None:
        yield wrong("file", "pg_restore is not installed. Install PostgreSQL's client programs.")
        return
    read = run([restoring.path, "--list", file])
    if read.returncode:
        yield wrong("file", f"pg_restore {restoring.version} cannot read it: {one_line(read.stderr)}")
        return
    whole = run([restoring.path, f"--file={os.devnull}", file])  # a truncated dump still has its table of contents
    if whole.returncode:
        yield wrong("file", f"pg_restore {restoring.version} cannot read all of it: {one_line(whole.stderr)}")
        return
    lines = read.stdout.splitlines()
    made = [line.strip("; ") for line in lines if line.startswith(";") and "Dumped" in line]
    yield BackupFinding("file", f"pg_restore {restoring.version} reads it; {', '.join(made)}")
    data = {line.split()[-2] for line in lines if " TABLE DATA " in line}
    if missing := [name for name in TABLES if data.isdisjoint((name, name.removeprefix("authz_")))]:
        yield wrong("tables", f"no rows of {', '.join(missing)}: the dump is incomplete, or of another database")
    else:
        yield BackupFinding("tables", f"{len(data)} with rows")


def schema_of_dump(file: Path, restoring: DumpProgram) -> str:
    """Return the schema of a dump that has only one, such as that of a space."""
    lines = run([restoring.path, "--list", file]).stdout.splitlines()
    schemas = {line.split()[-3] for line in lines if " TABLE DATA " in line}
    return schemas.pop() if len(schemas) == 1 else "public"
