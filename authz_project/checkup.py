"""The checks of `check_service`: each finding is a line of its report."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

from django.conf import settings
from django.db import Error, connection

from authz_project import environments
from authz_project.database import missing_database, state_of_database
from authz_project.keys import DEV_KEY_HASH
from authz_project.models import ApiKey
from authz_project.secret_key import secret_that_is_set, weakness_of
from authz_project.sqlite_log import LARGE, size_of_log
from checks.decisions.log import STANDARD_OUTPUT
from policy.ground.clock import now, time_of
from policy.replicas.standing import looked_at, state_of

# ---- What a check of the service found of one thing: a line of the report -----------------------------------------

OK, WARN, FAIL = "ok", "warn", "fail"


class CheckFinding(NamedTuple):
    """A line of the report. Whoever reads `warn` or `fail` also reads what to do. Never with a secret in it."""

    state: str  # one of the three above
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.state:<4}  {self.name:<12}  {self.text}"


def ok(name: str, text: str) -> CheckFinding:
    return CheckFinding(OK, name, text)


def warn(name: str, text: str) -> CheckFinding:
    return CheckFinding(WARN, name, text)


def fail(name: str, text: str) -> CheckFinding:
    return CheckFinding(FAIL, name, text)


def judged(name: str, fails: list[str], warnings: list[str], otherwise: str) -> CheckFinding:
    """Return one finding of all that is wrong with a thing, the worst first."""
    found = "; ".join([*fails, *warnings])
    if fails:
        return fail(name, found)
    return warn(name, found) if warnings else ok(name, otherwise)


# ---- of keys ------------------------------------------------------------------------------------------------------
# Keys: whether there are any, which have ended or will soon, and whether one is known to everybody.

SOON = timedelta(days=14)
SHOWN = 3  # keys that are named


def keys_finding() -> CheckFinding:
    moment = time_of(now())  # by the clock that ends them
    held = ApiKey.objects.filter(revoked_at=None).exclude(hash=DEV_KEY_HASH).order_by("expires_at", "pk")
    active = held.exclude(expires_at__lte=moment)
    warnings = []
    if not (count := active.count()):
        warnings.append("none opens anything: create_api_key makes one")
    if ended := list(held.filter(expires_at__lte=moment)):
        warnings.append(f"{_counted(ended)} ended: revoke_api_key, or give whoever has one another")
    if ending := list(active.filter(expires_at__lte=moment + SOON)):
        warnings.append(f"{_counted(ending)} ends within {SOON.days} days: give whoever has one another in time")
    if ApiKey.objects.filter(hash=DEV_KEY_HASH).exists():
        warnings.append("the well-known key of development is stored: `serve` without --dev removes it as it starts")
    return judged("keys", [], warnings, f"{count} active")


def _counted(keys: Sequence[ApiKey]) -> str:
    named = ", ".join(key.prefix for key in keys[:SHOWN])
    return f"{len(keys)} ({named}{', …' if len(keys) > SHOWN else ''})"


# ---- of database --------------------------------------------------------------------------------------------------
# The database: whether it answers, its form, its clock, its connections, those that are read beside it; and keys.

WITHIN = 10.0  # seconds for one thing to be found
OFTEN_ENOUGH, TOO_FAR = 1.0, 60.0  # seconds between the clocks: what is told, and what is wrong
LOCAL = "sqlite"

CheckFunction = Callable[[], CheckFinding]


def database_findings(workers: int, threads: int) -> Iterator[CheckFinding]:
    """Yield what each check finds; stop with a failure if the database does not answer one within WITHIN seconds."""
    if connection.vendor == LOCAL and not Path(connection.settings_dict["NAME"]).exists():
        yield warn("database", f"{connection.settings_dict['NAME']} is not there yet: `serve` makes it")
        return
    found: SimpleQueue[CheckFinding | None] = SimpleQueue()
    threading.Thread(target=_look, args=(found, workers, threads), name="look at the database", daemon=True).start()
    while True:
        try:
            each = found.get(timeout=WITHIN)
        except Empty:
            yield fail("database", f"has not answered for {WITHIN:g} seconds: is it overloaded, or stopped?")
            return
        if each is None:
            return
        yield each


def _look(found: SimpleQueue[CheckFinding | None], workers: int, threads: int) -> None:
    try:
        for each in _findings(workers, threads):
            found.put(each)
    except Exception as reason:  # whatever it is, nothing after it can be looked at
        text = " ".join(str(reason).split())
        found.put(fail("database", f"cannot be used: {text}; DATABASE_URL says which one it is"))
    finally:
        found.put(None)
        with suppress(Error):
            connection.close()


def _findings(workers: int, threads: int) -> Iterator[CheckFinding]:
    yield ok("database", environments.database_text())
    migrations = migrations_finding()
    yield migrations
    yield clock_finding()
    yield connections_finding(needed(workers, threads))
    yield from replica_findings()
    if migrations.state == "ok":
        yield keys_finding()


def migrations_finding() -> CheckFinding:
    state = state_of_database()
    if state.newer:
        last = ".".join(state.newer[-1])
        return fail("migrations", f"the database is of a later version ({last}): start that one, or a backup")
    if state.missing:
        missing = f"{len(state.missing)} missing, from {'.'.join(state.missing[0])} on"
        return fail("migrations", f"{missing}: `migrate` brings the database up to date, as `serve` does")
    return ok("migrations", "the database has the form of this version")


def clock_finding() -> CheckFinding:
    """Compare both clocks: keys expire by the database's clock, facts and logins by both."""
    if connection.vendor == LOCAL:
        return ok("clock", "SQLite has this machine's")
    with connection.cursor() as cursor:
        before = time.time()
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        (there,) = cursor.fetchone()
        after = time.time()
    between = max(before - there, there - after, 0.0)
    if between <= OFTEN_ENOUGH:
        return ok("clock", "as the database's")
    told = f"the database's differs by {between:.1f} seconds: ends of keys and facts are told by it; synchronise both"
    return fail("clock", told) if between > TOO_FAR else warn("clock", told)


def needed(workers: int, threads: int) -> int:
    """Return how many connections a server has at most: `docs/operations.md` lists them."""
    return 3 * workers * threads + 2 * workers + 1


def connections_finding(wanted: int) -> CheckFinding:
    if connection.vendor == LOCAL:
        return ok("connections", "as many as there are threads")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
        )
        (room,) = cursor.fetchone()
    told = f"one such server takes up to {wanted} of {room}"
    few = f"{told}: raise max_connections, or start it with fewer --workers and --threads"
    return judged("connections", [], [few] if wanted > room else [], told)


def replica_findings() -> Iterator[CheckFinding]:
    """Look at each of `DATABASE_REPLICA_URL` now. While one is left out, the others and the primary answer."""
    for each in looked_at():
        fails = [each.reason] if each.is_stranger else []
        warnings = [] if each.is_used or fails else [each.reason]
        yield judged(f"replica {each.name}", fails, warnings, state_of(each))


# ---- of files -----------------------------------------------------------------------------------------------------
# Files: room on their disks, who may read and write them, and whether the decision log can be written.

LITTLE, TOO_LITTLE = 1 << 30, 100 << 20  # bytes
OF_OTHERS, OF_GROUP = 0o007, 0o070
ENDS = ("", "-wal", "-shm", ".secret")  # of the files of an SQLite database


def file_findings() -> Iterator[CheckFinding]:
    database = database_file()
    log = Path(settings.DECISION_LOG) if settings.DECISION_LOG not in ("", STANDARD_OUTPUT) else None
    folders = {"database": database and database.parent, "decision log": log and log.absolute().parent}
    if there := {name: folder for name, folder in folders.items() if folder and folder.is_dir()}:
        yield disk_finding(there, size_of_log(database) if database else 0)
    if database is not None:
        yield rights_finding(database)
    if log is not None:
        yield log_finding(log)


def database_file() -> Path | None:
    """Return where SQLite keeps everything; other databases keep it elsewhere."""
    return Path(connection.settings_dict["NAME"]).absolute() if connection.vendor == "sqlite" else None


def disk_finding(folders: dict[str, Path], size: int = 0) -> CheckFinding:
    fails: list[str] = []
    warnings: list[str] = []
    fine: list[str] = []
    for name, folder in folders.items():
        free = shutil.disk_usage(folder).free
        told = f"{_size(free)} free for the {name}"
        (fails if free < TOO_LITTLE else warnings if free < LITTLE else fine).append(told)
    advice = [f"make room: {', '.join([*fails, *warnings])}"]
    others = advice if warnings and not fails else []
    if size >= LARGE:
        others = [*others, f"{_size(size)} are in the log beside the database: somebody has been reading for long"]
    return judged("disk", advice if fails else [], others, ", ".join(fine))


def rights_finding(database: Path) -> CheckFinding:
    """Check who may read: a database has hashes of passwords and of keys, and its secret signs logins."""
    fails, warnings = [], []
    for path in (database.with_name(database.name + end) for end in ENDS):
        if not path.exists():
            continue
        mode = path.stat().st_mode
        if mode & OF_OTHERS:
            fails.append(f"everybody may open {path.name}: chmod 600 {path}")
        elif mode & OF_GROUP:
            warnings.append(f"its group may open {path.name}: chmod 600 {path}, if that is not meant")
        if not os.access(path, os.R_OK | os.W_OK):
            fails.append(f"{path.name} belongs to somebody else: run as that user, or chown {path}")
    folder = database.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        fails.append(f"SQLite makes files in {folder}, and may not: chown it")
    elif folder.stat().st_mode & 0o1002 == 0o002:
        warnings.append(f"everybody may replace files in {folder}: chmod o-w {folder}")
    return judged("rights", fails, warnings, "database and secret are their owner's alone")


def log_finding(path: Path) -> CheckFinding:
    fails, warnings = [], []
    if not path.exists():
        if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
            fails.append(f"DECISION_LOG: {path} cannot be made: its folder is missing, or belongs to somebody else")
    elif not path.is_file() and not path.is_fifo() and not path.is_char_device():
        fails.append(f"DECISION_LOG: {path} is no file")
    elif not os.access(path, os.W_OK):
        fails.append(f"DECISION_LOG: {path} cannot be written: run as its owner, or chown it")
    elif path.is_file() and path.stat().st_mode & OF_OTHERS:
        warnings.append(f"everybody may read {path}, which has who may do what: chmod 600 {path}")
    return judged("decision log", fails, warnings, f"{path} can be written")


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= LITTLE else f"{number / (1 << 20):.0f} MiB"


# ---- of settings --------------------------------------------------------------------------------------------------
# Settings: what production wants, what has no effect, and the secret. Nonsense stops every command before this one.


def settings_findings() -> Iterator[CheckFinding]:
    yield judged("settings", [], [*_unset(), *_without_effect()], "as production wants them")
    secret = secret_that_is_set()
    if not secret and missing_database():
        yield ok("secret", "`serve` makes one beside the database")
        return
    weakness = weakness_of(secret)
    yield fail("secret", weakness) if weakness else ok("secret", "SECRET_KEY cannot be guessed")


def _unset() -> Iterator[str]:
    for each in environments.unset():
        yield f"{each.name} is not set: {each.why}"


def _without_effect() -> Iterator[str]:
    if settings.DECISION_LOG:
        return
    if settings.DECISION_LOG_DENIED or settings.DECISION_LOG_SAMPLE < 1 or not settings.DECISION_LOG_CONTEXT:
        yield "DECISION_LOG_… says what to write down, but DECISION_LOG not where"


# ---- All that is looked at, in the order in which one thing needs the one before it -------------------------------


def findings(workers: int, threads: int) -> Iterator[CheckFinding]:
    """Look at everything that a server of so many processes and threads needs."""
    return chain(settings_findings(), database_findings(workers, threads), file_findings())


def report(found: Iterable[CheckFinding], say: Callable[[str], object]) -> str:
    """Say each finding as soon as it is found; return what is wrong in all, or nothing."""
    failed = total = 0
    for each in found:
        say(str(each))
        total, failed = total + 1, failed + (each.state == FAIL)
    return f"{failed} of {total} checks failed" if failed else ""
