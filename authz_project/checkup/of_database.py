"""The database: whether it answers, its form, its clock, its connections, those that are read beside it; and keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from django.db import Error, connection

from authz_project import installation
from authz_project.checkup.check_finding import CheckFinding, fail, judged, ok, warn
from authz_project.checkup.of_keys import keys_finding
from authz_project.schema_state import state_of_database
from policy.replicas.standing import looked_at, state_of

WITHIN = 10.0  # seconds for one thing to be found
OFTEN_ENOUGH, TOO_FAR = 1.0, 60.0  # seconds between the clocks: what is told, and what is wrong
LOCAL = "sqlite"

Look = Callable[[], CheckFinding]


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
    yield ok("database", installation.database_text())
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
