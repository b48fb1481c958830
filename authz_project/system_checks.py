"""System checks of `authz check`: settings and files; with `--deploy`, also the database and API keys."""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from queue import Empty, SimpleQueue

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import Error as DatabaseError
from django.db import connection

from authz_project import environments
from authz_project.database import (
    LARGE,
    is_pooled,
    missing_database,
    missing_parameters,
    size_of_log,
    state_of_database,
)
from authz_project.keys import DEV_KEY_HASH
from authz_project.models import ApiKey
from authz_project.secret_key import secret_that_is_set, weakness_of
from authz_project.spaces import AT_HOME, is_distributed, seen, share_of_ids
from facts.table import fetch
from policy.core.clock import is_citus, now, time_of
from policy.core.config import STANDARD_OUTPUT
from policy.core.spaces import entered
from policy.core.threads import start_thread
from policy.errors import one_line
from policy.management.command import counted
from policy.replicas.reading import looked_at

Found = Iterator[CheckMessage]
LOCAL = "sqlite"


def quick() -> list[CheckMessage]:
    """Check settings and files."""
    return [*decision_log_settings(), *file_findings()]


def deployment() -> list[CheckMessage]:
    """Check the settings recommended for production, and everything in the database, without changing anything."""
    return [*production_settings(), *secret(), *database_findings()]


# ---- settings -------------------------------------------------------------------------------------------------------


def production_settings() -> Found:
    for name, consequence in environments.unset().items():
        yield Warning(f"{name} is not set: {consequence}.", f"Set {name} for production.", id="authz.W001")


def decision_log_settings() -> Found:
    others = settings.DECISION_LOG_DENIED, settings.DECISION_LOG_SAMPLE < 1, not settings.DECISION_LOG_CONTEXT
    if any(others) and not settings.DECISION_LOG:
        yield Warning(
            "Settings of the decision log have no effect, because DECISION_LOG is not set.",
            "Set DECISION_LOG to a file, or unset the others.", id="authz.W002",
        )  # fmt: skip


def secret() -> Found:
    value = secret_that_is_set()
    if not value and missing_database():  # `serve` creates one
        return
    if weakness := weakness_of(value):
        text, _, hint = weakness.partition(". ")
        yield Error(f"{text}.", hint, id="authz.E001")


# ---- database -------------------------------------------------------------------------------------------------------

WITHIN = 10.0  # seconds to wait for each result
OFTEN_ENOUGH, TOO_FAR = 1.0, 60.0  # seconds between the clocks: thresholds of a warning and of an error


def database_findings() -> Found:
    """Yield the findings of each check; stop with an error if one gets no response within WITHIN seconds."""
    if missing := missing_database():
        yield Warning(f"No database at {missing}.", "`serve` and `migrate` create it.", id="authz.W003")
        return
    found: SimpleQueue[CheckMessage | None] = SimpleQueue()
    start_thread("look at the database", _look, found)
    while True:
        try:
            each = found.get(timeout=WITHIN)
        except Empty:
            text = f"The database has not answered for {WITHIN:g} seconds."
            yield Error(text, "Check whether it is overloaded or stopped.", id="authz.E002")
            return
        if each is None:
            return
        yield each


def _look(found: SimpleQueue[CheckMessage | None]) -> None:
    try:
        for each in _findings():
            found.put(each)
    except Exception as reason:  # whatever it is, the remaining checks cannot run
        text = f"Cannot use the database: {one_line(reason)}"
        found.put(Error(text, "Check DATABASE_URL.", id="authz.E003"))
    finally:
        found.put(None)
        with suppress(DatabaseError):
            connection.close()


def _findings() -> Found:
    environments.database_version()
    migrations = list(migration_findings())
    yield from migrations
    yield from clock_findings()
    yield from connection_findings(os.cpu_count() or 1, 4)  # the defaults of `serve`
    yield from replica_findings()
    if not migrations:
        yield from key_findings()
        yield from space_findings()


def space_findings() -> Found:
    """Check the spaces: whether each can be used, is up to date, and has ids left to give."""
    for each in seen():
        if each.trouble:
            yield Error(f"Space {each.name} cannot be used: {each.trouble}.", "Check its server.", id="authz.E014")
            continue
        if each.name == AT_HOME:
            continue
        with entered(each.name):
            if missing := state_of_database().missing:
                text = f"Space {each.name}: {counted(len(missing), 'migration')} not applied."
                yield Error(text, "Run `migrate` or `serve`.", id="authz.E015")
            if (share := share_of_ids()) > FULL:
                text = f"Space {each.name} has given {share:.0%} of its ids."
                yield Warning(text, "Create new environments in another space.", id="authz.W016")
            if is_citus() and not is_distributed():
                text = f"Space {each.name} is not distributed, so Citus keeps it on the coordinator."
                yield Warning(text, f"Run SELECT citus_schema_distribute('{each.name}').", id="authz.W017")


FULL = 0.8  # share of a space's ids


def migration_findings() -> Found:
    state = state_of_database()
    if state.newer:
        text = f"The database was migrated by a later version ({'.'.join(state.newer[-1])})."
        yield Error(text, "Run that version, or restore a backup.", id="authz.E004")
    elif state.missing:
        text = f"{counted(len(state.missing), 'migration')} not applied, from {'.'.join(state.missing[0])} on."
        yield Error(text, "Run `migrate` or `serve`.", id="authz.E005")


def clock_findings() -> Found:
    """Compare the clocks: keys expire by the database's clock, facts and logins by both."""
    if connection.vendor == LOCAL:
        return
    before = time.time()
    ((there,),) = fetch("SELECT extract(epoch FROM clock_timestamp())::float8")
    after = time.time()
    between = max(before - there, there - after, 0.0)
    if between <= OFTEN_ENOUGH:
        return
    text = f"The database's clock differs by {between:.1f} seconds. Keys and facts expire by it."
    hint = "Synchronize the clocks of both machines."
    yield Error(text, hint, id="authz.E006") if between > TOO_FAR else Warning(text, hint, id="authz.W004")


def connection_findings(workers: int, threads: int) -> Found:
    """Compare the connections that such a server may open with the limit; `docs/operations.md` lists them."""
    if connection.vendor == LOCAL:
        return
    if is_pooled():
        if missing := missing_parameters():
            text = f"Connections of the pooler lack {', '.join(missing)}."
            yield Error(text, "Start `serve`, then run RECONNECT in PgBouncer's console.", id="authz.E013")
        return
    ((room,),) = fetch(
        "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
    )
    needed = 3 * workers * max(2, threads) + 2 * workers + 1
    if needed > room:
        text = f"A server with --workers {workers} --threads {threads} opens up to {needed} of {room} connections."
        yield Warning(text, "Raise max_connections, or use fewer workers and threads.", id="authz.W005")


def replica_findings() -> Found:
    """Check each replica of DATABASE_REPLICA_URL. If one is unusable, the others and the primary answer."""
    for each in looked_at():
        text = f"Replica {each.name} is not used: {each.reason}."
        if each.is_stranger:
            yield Error(text, "Remove it from DATABASE_REPLICA_URL.", id="authz.E007")
        elif not each.is_used:
            yield Warning(text, "The primary and other replicas answer instead.", id="authz.W006")


# ---- API keys -------------------------------------------------------------------------------------------------------

SOON = timedelta(days=14)
SHOWN = 3  # keys to name


def key_findings() -> Found:
    moment = time_of(now())  # the database's clock, by which keys expire
    held = ApiKey.objects.filter(revoked_at=None).exclude(hash=DEV_KEY_HASH).order_by("expires_at", "pk")
    active = held.exclude(expires_at__lte=moment)
    if not active.exists():
        yield Warning("No API key is active.", "Create one with `api_keys create`.", id="authz.W007")
    if ended := list(held.filter(expires_at__lte=moment)):
        yield Warning(f"Expired API keys: {_named(ended)}.", "Revoke or replace them.", id="authz.W008")
    if ending := list(active.filter(expires_at__lte=moment + SOON)):
        text = f"API keys that expire within {SOON.days} days: {_named(ending)}."
        yield Warning(text, "Replace them with `api_keys rotate`.", id="authz.W009")
    if ApiKey.objects.filter(hash=DEV_KEY_HASH).exists():
        text = "The well-known development key is stored."
        yield Warning(text, "`serve` without --dev removes it.", id="authz.W010")


def _named(keys: Sequence[ApiKey]) -> str:
    named = ", ".join(key.prefix for key in keys[:SHOWN])
    return f"{len(keys)} ({named}{', …' if len(keys) > SHOWN else ''})"


# ---- files ----------------------------------------------------------------------------------------------------------

LITTLE, TOO_LITTLE = 1 << 30, 100 << 20  # bytes
OF_OTHERS, OF_GROUP = 0o007, 0o070
ENDS = ("", "-wal", "-shm", ".secret")  # suffixes of an SQLite database's files


def file_findings() -> Found:
    database = database_file()
    log = Path(settings.DECISION_LOG) if settings.DECISION_LOG not in ("", STANDARD_OUTPUT) else None
    folders = {"database": database and database.parent, "decision log": log and log.absolute().parent}
    there = {name: folder for name, folder in folders.items() if folder and folder.is_dir()}
    yield from disk_findings(there, size_of_log(database) if database else 0)
    if database is not None:
        yield from permission_findings(database)
    if log is not None:
        yield from log_findings(log)


def database_file() -> Path | None:
    """Return the path of the SQLite database; None for PostgreSQL."""
    return Path(connection.settings_dict["NAME"]).absolute() if connection.vendor == LOCAL else None


def disk_findings(folders: dict[str, Path], size: int = 0) -> Found:
    for name, folder in folders.items():
        free = shutil.disk_usage(folder).free
        text, hint = f"{_size(free)} of disk space left for the {name}.", f"Free disk space for {folder}."
        if free < TOO_LITTLE:
            yield Error(text, hint, id="authz.E008")
        elif free < LITTLE:
            yield Warning(text, hint, id="authz.W011")
    if size >= LARGE:
        text = f"The write-ahead log of the database has {_size(size)}."
        yield Warning(text, "Look for a process that reads the database for long.", id="authz.W012")


def permission_findings(database: Path) -> Found:
    """Check file permissions: a database contains hashes of passwords and keys, and its secret signs logins."""
    for path in (database.with_name(database.name + end) for end in ENDS):
        if not path.exists():
            continue
        mode = path.stat().st_mode
        if mode & OF_OTHERS:
            yield Error(f"All users may open {path}.", f"Run `chmod 600 {path}`.", id="authz.E009")
        elif mode & OF_GROUP:
            yield Warning(f"All users of its group may open {path}.", f"Run `chmod 600 {path}`.", id="authz.W013")
        if not os.access(path, os.R_OK | os.W_OK):
            yield Error(f"Cannot read and write {path}.", "Run as its owner, or use chown.", id="authz.E010")
    folder = database.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Error(f"Cannot create files in {folder}, as SQLite needs to.", "Use chown.", id="authz.E011")
    elif folder.stat().st_mode & 0o1002 == 0o002:
        yield Warning(f"All users may replace files in {folder}.", f"Run `chmod o-w {folder}`.", id="authz.W014")


def log_findings(path: Path) -> Found:
    if not path.exists():
        if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
            text = f"Cannot create {path}: its folder does not exist or is not writable."
            yield Error(text, "Create the folder, or change DECISION_LOG.", id="authz.E012")
    elif not path.is_file() and not path.is_fifo() and not path.is_char_device():
        yield Error(f"DECISION_LOG: {path} is not a file.", "Set DECISION_LOG to a file.", id="authz.E012")
    elif not os.access(path, os.W_OK):
        yield Error(f"Cannot write to {path}.", "Run as its owner, or use chown.", id="authz.E012")
    elif path.is_file() and path.stat().st_mode & OF_OTHERS:
        text = f"All users may read {path}, which tells who may do what."
        yield Warning(text, f"Run `chmod 600 {path}`.", id="authz.W015")


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= LITTLE else f"{number / (1 << 20):.0f} MiB"
