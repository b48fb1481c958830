"""The database: its errors, connections, schema state, SQLite's write-ahead log, and readiness."""

import logging
import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import cache, wraps
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.migrations.loader import MigrationLoader

from policy.core import spans
from policy.core.clock import is_citus, timeline_of
from policy.errors import one_line

# ---- error codes --------------------------------------------------------------------------------------------------
# Map the database's error codes to what callers are told, and whether a retry may help.
#
# SQLite's codes are numbers, PostgreSQL's have five characters; Django wraps both in exceptions of its own. For codes
# that are not listed here, callers are told that the database is unreachable.


class Trouble(NamedTuple):
    status: int
    message: str
    retry_after: int = 0  # seconds; 0 if a retry does not help

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after)} if self.retry_after else {}


AWAY = Trouble(503, "the database is unreachable; try again", 1)
FULL = Trouble(503, "the database disk is full; nothing changed; free disk space, then try again", 10)
READ_ONLY = Trouble(503, "the database is read-only; nothing changed; try again later", 10)
CROWDED = Trouble(503, "the database has no free connections; try again", 1)
MEMORY = Trouble(503, "out of memory; try again", 1)
DISK = Trouble(503, "the database disk reports I/O errors; try again later", 10)
BUSY = Trouble(503, "timed out waiting for a database lock; try again", 1)
DAMAGED = Trouble(500, "the database is corrupt; an operator must restore a backup")

NO_THREAD = "can't start new thread"  # the message of Python's `RuntimeError`

_SQLITE = {  # by primary result code
    sqlite3.SQLITE_BUSY: BUSY,
    sqlite3.SQLITE_NOMEM: MEMORY,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_IOERR: DISK,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_NOTADB: DAMAGED,
}
_POSTGRESQL = {  # by SQLSTATE
    "25006": READ_ONLY,  # of a standby, or of a former primary after a failover
    "53100": FULL,
    "53200": MEMORY,
    "53300": CROWDED,
    "58030": DISK,
    "XX001": DAMAGED,
    "XX002": DAMAGED,
}


def trouble_of(error: BaseException) -> Trouble | None:
    """Return what an error says about the database; None if unknown."""
    if is_scarcity(error):
        return MEMORY
    for each in _causes(error):
        if number := getattr(each, "sqlite_errorcode", 0):
            return _SQLITE.get(number & 0xFF)
        if code := getattr(each, "sqlstate", None):
            return _POSTGRESQL.get(code)
    return None


def is_scarcity(error: BaseException) -> bool:
    """Return whether the process could not get more memory or another thread."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and NO_THREAD in str(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield Django's error and the driver's."""
    yield error
    if error.__cause__ is not None:
        yield error.__cause__


# ---- corruption ---------------------------------------------------------------------------------------------------
# Detect a corrupt SQLite file, as far as possible within a few seconds, and advise what to do.

LOOKS_FOR = 2.0  # seconds; a file of a million facts takes one
_STEPS = 50_000  # instructions of SQLite's virtual machine between checks of the clock
ADVICE = "move the file aside, restore a backup (see Operations, Backup), and start again"


def refusal_of(error: Exception) -> str:
    """Return the message for a database that cannot even be opened."""
    said = one_line(error)
    if trouble_of(error) is DAMAGED:
        return f"the database {_file()} is corrupt ({said}): {ADVICE}"
    if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN:
        return f"cannot open the database: {said}; SQLite needs write access to {_file()} and its folder"
    return f"cannot connect to the database: {said}"


def damage(mine: BaseDatabaseWrapper) -> str:
    """Return what is wrong with the file; empty if `quick_check` finds no fault within LOOKS_FOR seconds."""
    raw, until = mine.connection, time.monotonic() + LOOKS_FOR
    raw.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        with mine.cursor() as cursor:
            (found,) = cursor.execute("PRAGMA quick_check(1)").fetchone()
    except Error as error:
        found = str(error) if trouble_of(error) is DAMAGED else "ok"
    finally:
        raw.set_progress_handler(None, 0)
    return "" if found == "ok" else (f"the database {_file()} is corrupt ({one_line(found)}): {ADVICE}")


def _file() -> str:
    return str(connection.settings_dict["NAME"])


# ---- poolers ------------------------------------------------------------------------------------------------------
# Behind PgBouncer in transaction mode (`pool_mode=transaction`), connections have no parameters of their own. The role
# has them as defaults instead. That takes no privilege: a role may change its own.


def is_pooled() -> bool:
    return bool(connection.settings_dict.get("PARAMETERS"))


def missing_parameters() -> list[str]:
    """Return the parameters of statements that the pooler's connection lacks."""
    if not is_pooled():
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, setting || COALESCE(unit, '') FROM pg_settings")
        found = dict(cursor.fetchall())
    return [name for name, value in connection.settings_dict["PARAMETERS"].items() if found.get(name) != value]


def give_role_parameters(parameters: Mapping[str, str]) -> str:
    """Make the parameters defaults of the role in this database, for new connections; return the role's name."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT quote_ident(current_user), quote_ident(current_database())")
        role, database = cursor.fetchone()
        for name, value in parameters.items():
            cursor.execute(f"ALTER ROLE {role} IN DATABASE {database} SET {name} = '{value}'")
    return role


# ---- Citus --------------------------------------------------------------------------------------------------------
# A worker of Citus plans the statements again, in connections of the coordinator's. They have the defaults of the role,
# which Citus sets on all servers.

_PLANNING = "'jit', 'join_collapse_limit', 'enable_memoize'"


def missing_on_workers() -> dict[str, str]:
    """Return this connection's parameters of planning that are not the role's defaults; none without Citus."""
    if not is_citus():
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT name, setting FROM pg_settings WHERE name IN ({_PLANNING}) AND NOT EXISTS (SELECT 1 FROM"
            " pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()"
            " AND s.setrole = current_user::regrole AND name || '=' || setting = ANY(s.setconfig))"
        )
        return dict(cursor.fetchall())


# ---- connections --------------------------------------------------------------------------------------------------
# Drop broken connections: connections are persistent, and the database may restart between requests.
#
# Testing the connection before each request would cost a round trip. So a thread tests its connection only if it has
# been idle for long, or if any thread of the process has lost one since this thread last used its own. Thus a restart
# of the database fails one request per process, not one per thread.

IDLE = 30.0  # seconds

_lost_at = 0.0
_unresponsive_at = -math.inf
_is_unresponsive = False  # the database neither responds nor closes connections


def note_loss() -> None:
    """Record that a connection broke, so that each thread tests its own before using it again."""
    global _lost_at
    _lost_at = time.monotonic()


def set_unresponsive(is_unresponsive: bool) -> None:
    """Record whether the database is unresponsive; while it is, requests fail at once instead of waiting for it.

    Afterwards each thread reconnects: testing its old connection might mean waiting for the hung server again.
    """
    global _is_unresponsive, _unresponsive_at
    if is_unresponsive:
        _unresponsive_at = time.monotonic()
    _is_unresponsive = is_unresponsive


def is_outdated(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a connection is to a former primary, which another server has replaced."""
    return 0 < getattr(connection, "timeline", 0) < timeline_of(connection).number


def refresh_connection(mine: BaseDatabaseWrapper | None = None) -> None:
    """Drop this thread's connection if it is dead; to be called before a request uses it. Pass it as `mine` if at hand.

    Raise `OperationalError` while the database is unresponsive.
    """
    if _is_unresponsive:
        raise OperationalError("the database does not respond")
    now = time.monotonic()
    mine = mine or connections[DEFAULT_DB_ALIAS]
    seen = getattr(mine, "seen", 0.0)
    mine.seen = now  # type: ignore[attr-defined]
    if mine.connection is None or mine.in_atomic_block:
        return
    doubtful = seen <= _lost_at or now - seen > IDLE
    if is_outdated(mine) or seen <= _unresponsive_at or (doubtful and not mine.is_usable()):
        mine.close()
        _note_lost()


def let_go_if_broken() -> BaseDatabaseWrapper:
    """Drop this thread's connection if an error made it unusable; called before and after each request, as in Django.

    Connections in a transaction are left alone, for tests. Return the connection, because looking it up takes longer
    than most other parts of a request.
    """
    mine = connections[DEFAULT_DB_ALIAS]
    if mine.connection is None or mine.in_atomic_block:
        return mine
    if mine.errors_occurred or not mine.autocommit:
        mine.close_if_unusable_or_obsolete()
    # If the request ignored the error, the driver knows of the loss but Django does not.
    if mine.connection is not None and mine.vendor == "postgresql" and mine.connection.closed:
        mine.close()
    if mine.connection is None:  # it was broken: connections have no maximum age
        _note_lost()
    return mine


@cache
def note_connecting() -> None:
    """Record the time spent connecting as a part of the request, while there are observers.

    Replaces a method of Django, because its signal is sent only after a connection was made, without a start time.
    """
    connect = BaseDatabaseWrapper.connect

    @wraps(connect)
    def noted(self: BaseDatabaseWrapper) -> None:
        with spans.noted("wait", of="connection"):
            connect(self)

    BaseDatabaseWrapper.connect = noted  # type: ignore[method-assign]


def _note_lost() -> None:
    if spans.is_on:
        spans.note("lost")


# ---- schema state -------------------------------------------------------------------------------------------------
# The state of a database's schema: its applied migrations compared with those of this program.

APPLIED = "SELECT app, name FROM django_migrations"
UNDEFINED_TABLE = "42P01"  # PostgreSQL's code

Migration = tuple[str, str]  # app label and name


class SchemaState(NamedTuple):
    """How a database's schema differs from the program's; both fields are empty if it is up to date."""

    missing: tuple[Migration, ...]  # unapplied migrations of this program
    unknown: tuple[Migration, ...]  # applied migrations of this program's apps that this program does not have

    @property
    def is_current(self) -> bool:
        return not self.missing and not self.unknown

    @property
    def newer(self) -> tuple[Migration, ...]:
        """Return the migrations of a later version: those after the app's last one in this program."""
        last: dict[str, str] = {}
        for app, name in known():
            last[app] = max(name, last.get(app, ""))
        return tuple((app, name) for app, name in self.unknown if name > last[app])


def state_of_database() -> SchemaState:
    """Compare the applied migrations with this program's, using one query."""
    return state_of(applied())


def state_of(applied: Iterable[Migration]) -> SchemaState:
    """Return the state of a database with these migrations. Those of removed apps are ignored."""
    has, knows = {(app, name) for app, name in applied}, known()
    ours = {app for app, _ in knows}
    unknown = sorted(each for each in has - knows if each[0] in ours)
    return SchemaState(tuple(sorted(knows - has)), tuple(unknown))


def applied() -> frozenset[Migration]:
    """Return the applied migrations; none if the database is not initialized."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(APPLIED)
            return frozenset((app, name) for app, name in cursor.fetchall())
    except Error as reason:
        if lacks_tables(reason):
            return frozenset()
        raise


@cache
def known() -> frozenset[Migration]:
    """Return the migrations of this program and its dependencies."""
    return frozenset(MigrationLoader(None).disk_migrations)


def lacks_tables(error: Exception) -> bool:
    """Return whether a statement failed because the database is not initialized."""
    return str(error).startswith("no such table") or getattr(error.__cause__, "sqlstate", "") == UNDEFINED_TABLE


def database_place() -> str:
    """Return the location of the database, without a password."""
    config = connection.settings_dict
    if connection.vendor == "sqlite":
        return str(Path(config["NAME"]).absolute())
    return f"`{config['NAME']}` on {config['HOST'] or 'localhost'}"


def missing_database() -> Path | None:
    """Return the SQLite file that DATABASE_URL names, if it does not exist."""
    if connection.vendor != "sqlite":
        return None
    file = Path(connection.settings_dict["NAME"]).absolute()
    return None if file.exists() else file


# ---- SQLite's write-ahead log -------------------------------------------------------------------------------------
# Keep it from growing without bound.
#
# A checkpoint copies changes from the log into the database file, but SQLite restarts the log only at a moment when no
# transaction reads from it. If long-running readers overlap, there is no such moment. So once the log is large, writers
# are blocked for a while: the current readers finish, and new ones find everything in the file.

_wal_log = logging.getLogger("authz.database")

LARGE = 64 << 20  # bytes; above this, writers are blocked for a moment
VERY_LARGE = 8 * LARGE  # above this, they are blocked for as long as queries may take
A_MOMENT = 1.0  # seconds
WARNED_EVERY = 60.0  # seconds


class _Keeper:
    """Remembers the results of earlier attempts to truncate the log."""

    def __init__(self) -> None:
        self._in_vain_at = 0  # bytes, the size at which writers were blocked without success
        self._warned_at = -math.inf

    def keep_small(self) -> None:
        """Truncate the log if it is large; leave it if a transaction stays open for longer than the timeout."""
        if connection.vendor != "sqlite":
            return
        database = Path(connection.settings_dict["NAME"])
        size = size_of_log(database)
        if size < LARGE:
            return
        wait = self._patience(size)
        try:
            is_anew = is_begun_anew(database, wait)
        except sqlite3.Error as error:
            self._warn(size, str(error))
            return
        if is_anew:
            self._in_vain_at = 0
        elif wait > A_MOMENT:
            self._in_vain_at = size
        if is_anew is False:
            self._warn(size, "a long-running read, such as a backup or dump_facts, blocks it")

    def _patience(self, size: int) -> float:
        """Return the timeout: short after a failed long attempt, until the log has grown by VERY_LARGE."""
        return A_MOMENT if self._in_vain_at and size < self._in_vain_at + VERY_LARGE else patience(size)

    def _warn(self, size: int, reason: str) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARNED_EVERY:
            self._warned_at = now
            size >>= 20
            _wal_log.warning(
                "the SQLite write-ahead log has grown to %s MiB and cannot be reset: %s", f"{size:,}", reason
            )


keep_small = _Keeper().keep_small


def size_of_log(database: Path) -> int:
    """Return the size of the log on disk, in bytes."""
    try:
        return database.with_name(f"{database.name}-wal").stat().st_size
    except OSError:
        return 0


def patience(size: int) -> float:
    """Return how long writers may be blocked."""
    if size < VERY_LARGE:
        return A_MOMENT
    wait = 2 * settings.STATEMENT_TIMEOUT + A_MOMENT
    return min(wait, settings.WRITE_TIMEOUT / 2) if settings.WRITE_TIMEOUT else wait


def is_begun_anew(database: Path, wait: float) -> bool | None:
    """Checkpoint the whole log and truncate it. Return whether that succeeded within `wait` seconds.

    False means that a reader prevented it; None, that a writer with a large change holds the log.
    """
    with closing(sqlite3.connect(database, timeout=wait, isolation_level=None)) as own:
        own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # most of the work, without blocking writers
        is_busy, *_ = own.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not is_busy:
            return True
        _, pages, in_the_file = own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return None if in_the_file == pages else False


# ---- readiness ----------------------------------------------------------------------------------------------------
# Whether this process can answer requests: the database responds, and its schema is the one of this program.

log = logging.getLogger("authz.server")

HEALTH = ("/healthcheck", "/api/healthcheck")  # answered as soon as requests are accepted
READINESS = "/readyz"

# Set once this process is told to stop. It still answers for a while, but load balancers should use others.
draining = threading.Event()


class Readiness(NamedTuple):
    """The response of /readyz, without details of the database, as it is public."""

    reason: str  # the cause, in one word for programs; empty if ready
    message: str

    @property
    def status(self) -> int:
        return 503 if self.reason else 200

    @property
    def body(self) -> dict[str, object]:
        return {"message": self.message, **({"reason": self.reason} if self.reason else {})}


READY = Readiness("", "ready")
DRAINING = Readiness("draining", "the service is shutting down; send requests to another instance")
DATABASE_AWAY = Readiness("database", "the database does not respond")
UNPREPARED = Readiness("form", "the database schema is out of date; run `authz migrate`")
NEWER = Readiness("form", "the database schema belongs to a newer version; start that version")
FILE_GONE = Readiness(
    "database", "the database file was removed or replaced while the service runs; restore it, then restart the service"
)


def current() -> Readiness:
    """Check the database on this thread's connection, and return the result. Never raises an `Exception`."""
    if draining.is_set():
        return DRAINING
    with suppress(Exception):  # perhaps only the connection is dead, from before the database was last restarted
        return _of_database()
    try:
        connections[DEFAULT_DB_ALIAS].close()
        return _of_database()
    except Exception as reason:
        log.warning("not ready: %s: %s", DATABASE_AWAY.message, one_line(reason))
        return DATABASE_AWAY


# A removed or replaced SQLite file: open connections still use the old one, whose changes will be lost.
_FileIdentity = tuple[int, int]  # device and inode
_files: dict[str, _FileIdentity] = {}  # by path: the file that this process first connected to


def _note_file(sender: object, connection: BaseDatabaseWrapper, **_: object) -> None:
    if connection.vendor == "sqlite" and connection.alias == DEFAULT_DB_ALIAS:
        name = str(connection.settings_dict["NAME"])
        if (found := _identity_of(name)) is not None:
            _files.setdefault(name, found)


connection_created.connect(_note_file, dispatch_uid="identity of the SQLite file")


def _identity_of(name: str) -> _FileIdentity | None:
    try:
        found = Path(name).stat()
    except OSError:  # also a database in memory
        return None
    return found.st_dev, found.st_ino


def _is_file_gone() -> bool:
    name = str(connection.settings_dict["NAME"])
    if connection.vendor != "sqlite" or name not in _files or _identity_of(name) == _files[name]:
        return False
    log.warning("not ready: %s was removed or replaced; restore it, then restart the service", name)
    return True


def _of_database() -> Readiness:
    if _is_file_gone():
        return FILE_GONE
    state = state_of_database()
    if state.missing:
        return UNPREPARED
    if state.newer:
        return NEWER
    return settings.FOLLOW.readiness if settings.FOLLOW else READY
