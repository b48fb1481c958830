"""Serialize writers, and record every committed change as a revision."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from sqlite3 import SQLITE_BUSY
from typing import Any

from django.db import DEFAULT_DB_ALIAS, InternalError, OperationalError, connection, connections, transaction
from django.db.backends.utils import CursorWrapper
from django.http import HttpRequest

from policy.core import spans
from policy.core.clock import new_moment, now_in
from policy.core.config import settings
from policy.core.notifications import watch
from policy.errors import Busy, Cancelled, NoPrimary, NotFound
from policy.replicas.reading import note_change

# ---- revisions ----------------------------------------------------------------------------------------------------
# The history: every committed change adds a revision, which records its author and time.


class Kind(StrEnum):
    FACTS = "facts"  # inserts and deletes
    LOAD = "load"  # a file of facts
    CLEAR = "clear"  # all facts are deleted
    COPY = "copy"  # the facts of another environment
    EXPIRY = "expiry"  # facts that have expired
    POLICY = "policy"  # another version becomes active
    ENVIRONMENT = "environment"  # the environment is renamed
    UPGRADE = "upgrade"  # an older database, without revisions, begins to record them


@dataclass(frozen=True, slots=True)
class By:
    """The author of a change (`key 3 "billing"`, `admin ann`, `command load_facts`), and the request's id."""

    author: str = ""
    request_id: str = ""


NOBODY = By()


def by_command(name: str) -> By:
    return By(f"command {name}")


def by_admin(request: HttpRequest) -> By:
    """Return the user who is logged in to the admin, as the author of a change."""
    return By(f"admin {request.user.get_username()}", getattr(request, "request_id", ""))


@dataclass(frozen=True, slots=True)
class Done:
    """A change to be committed as a revision of its own, with the number of facts it actually changed."""

    number: int
    kind: Kind
    by: By
    policy_version_id: int | None  # the version that is active from this revision on
    inserted: int = 0
    deleted: int = 0


COLUMNS = "environment_id, number, at, author, request_id, policy_version_id, kind, inserted, deleted"


def record(environment_id: int, changes: Sequence[Done]) -> None:
    """Store the revisions, whose numbers are consecutive. This is the last step of a writing transaction.

    Their time is that of the database's clock, but never less than that of the preceding revision.
    """
    rows = ", ".join([f"(%s, %s, {time_of_revision()}, %s, %s, %s, %s, %s, %s)"] * len(changes))
    first = changes[0].number
    values: list[str | int | None] = [value for each in changes for value in _values(environment_id, first, each)]
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO authz_revision ({COLUMNS}) VALUES {rows}", values)
    note_recorded(environment_id, changes)


def time_of_revision() -> str:
    """Return SQL for a revision's time. Its parameters: the environment's id, and the preceding revision's number."""
    latest = "MAX" if connection.vendor == "sqlite" else "GREATEST"
    before = "SELECT at FROM authz_revision WHERE environment_id = %s AND number = %s"
    return f"{latest}({now_in(connection.vendor)}, COALESCE(({before}), 0))"


def note_recorded(environment_id: int, changes: Sequence[Done]) -> None:
    """Notify those who wait for changes of these revisions, once they are committed."""
    transaction.on_commit(partial(_tell, environment_id, changes[-1].number))
    if spans.is_on:
        transaction.on_commit(partial(_note, changes))


def _tell(environment_id: int, number: int) -> None:
    """Wake this process's waiting threads, and note the position that a replica needs in order to show this change."""
    watch.tell(environment_id, number)
    note_change(environment_id, number)


def _note(changes: Sequence[Done]) -> None:
    for each in changes:
        spans.note("revision", kind=each.kind.value, inserted=each.inserted, deleted=each.deleted)
    spans.note("commit", changes=len(changes))


def _values(environment_id: int, first: int, done: Done) -> Iterable[str | int | None]:
    by = done.by
    yield from (environment_id, done.number, environment_id, first - 1, by.author, by.request_id)
    yield from (done.policy_version_id, done.kind.value, done.inserted, done.deleted)


def newest_and_horizon(environment_id: int) -> tuple[int, int]:
    """Return the numbers of the latest revision, and of the horizon: the oldest one as of which all facts are known."""
    with connection.cursor() as cursor:
        cursor.execute('SELECT "offset", horizon FROM authz_environment WHERE id = %s', (environment_id,))
        row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    return row


# ---- offsets ------------------------------------------------------------------------------------------------------
# Writing transactions are serialized. Each increments its environment's counter, which clients see as `OsoOffset`.
#
# Waiting for a turn has a timeout of its own, `WRITE_TIMEOUT`, separate from that of queries. A change that reaches it
# is not made, and can be retried.

SHORTEST_PAUSE, LONGEST_PAUSE = 0.0002, 0.005  # seconds between attempts to lock the SQLite file
READ_ONLY = "25006"  # PostgreSQL's code when a server is read-only: it is a standby, or has become one
QUERY_CANCELED = "57014"  # PostgreSQL's code for a statement that timed out or was cancelled


@dataclass(frozen=True, slots=True)
class WriterTurn:
    """A writer's turn in its environment: the offset that it will commit, and the policy version active until then."""

    offset: int
    policy_version_id: int | None
    ends_mark: int  # 0: no fact has had an expiry (see `facts.numbering.Marks`)


@contextmanager
def changing(waited: float = 0.0) -> Iterator[None]:
    """Open a writing transaction; raise `Busy`, `Cancelled` or `NoPrimary` if the database refuses it.

    `waited` is how many seconds the change has already waited for its turn; `WRITE_TIMEOUT` limits the total.
    """
    try:
        with _Transaction(waited):
            yield
    except OperationalError as error:
        if was_cancelled(error):
            raise Cancelled from error
        if is_busy(error):
            raise Busy(settings.WRITE_TIMEOUT) from error
        raise
    except InternalError as error:
        if getattr(error.__cause__, "sqlstate", None) != READ_ONLY:
            raise
        mine = connections[DEFAULT_DB_ALIAS]
        if not mine.in_atomic_block:
            mine.close()  # so that the next connection may be to a server that takes changes
        raise NoPrimary from error


class _Transaction(transaction.Atomic):
    """A transaction that waits until no one else writes to the SQLite file.

    It does its own polling: SQLite's busy handler backs off until it polls only ten times a second.
    """

    def __init__(self, waited: float):
        super().__init__(using=DEFAULT_DB_ALIAS, savepoint=False, durable=False)
        self.waited = waited

    def __enter__(self) -> None:
        mine = connections[DEFAULT_DB_ALIAS]
        if mine.vendor != "sqlite" or mine.in_atomic_block:
            super().__enter__()
            return
        mine.ensure_connection()
        _set_busy_timeout(mine, 0)
        try:
            with spans.noted("wait", of="turn"):
                self._await_file(time.monotonic() + left(self.waited))
        except BaseException:
            _set_busy_timeout(mine, mine.settings_dict["OPTIONS"].get("timeout", 5.0))
            raise
        try:
            _set_busy_timeout(mine, mine.settings_dict["OPTIONS"].get("timeout", 5.0))
        except BaseException as error:  # the transaction has begun, and no one else would end it
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def _await_file(self, until: float) -> None:
        pause = SHORTEST_PAUSE
        while True:
            try:
                super().__enter__()
                return
            except OperationalError as error:
                if not is_busy(error) or time.monotonic() >= until:
                    raise
            time.sleep(min(pause, max(0.0, until - time.monotonic())))
            pause = min(pause * 1.3, LONGEST_PAUSE)


def _set_busy_timeout(connection: Any, seconds: float) -> None:
    with connection.wrap_database_errors:
        connection.connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")


def left(waited: float) -> float:
    """Return how many more seconds a change may wait for its turn."""
    return max(0.0, settings.WRITE_TIMEOUT - waited) if settings.WRITE_TIMEOUT else math.inf


def is_busy(error: Exception) -> bool:
    """Return whether SQLite failed because another connection is writing."""
    return getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF == SQLITE_BUSY


def was_cancelled(error: Exception) -> bool:
    return getattr(error.__cause__, "sqlstate", None) == QUERY_CANCELED


def advance(environment_id: int, waited: float = 0.0) -> WriterTurn:
    """Take the environment's next turn. This is the first step of a writing transaction, so writers queue here.

    The environment's row stays locked until the transaction ends. So the writers of an environment are serialized, the
    policy cannot change while one of them runs, and since all take this lock first, there is no deadlock.
    """
    assert transaction.get_connection().in_atomic_block, "a turn is part of the transaction that changes something"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with spans.noted("wait", of="turn"):
                row = _turn_on_server(cursor, environment_id, left(waited))
            if waited > settings.WRITE_TIMEOUT / 10:  # the timeout for the wait may be too short for what follows
                cursor.execute(_limit(left(0)))
        else:  # on SQLite, the transaction waited for its turn before it began
            cursor.execute(_NEXT_TURN, (new_moment(), environment_id))
            row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    return WriterTurn(*row)


_NEXT_TURN = (
    'UPDATE authz_environment SET "offset" = "offset" + 1, moment = %s WHERE id = %s'
    ' RETURNING "offset", policy_version_id, ends_mark'
)


def _turn_on_server(cursor: CursorWrapper, environment_id: int, limit: float) -> Sequence[Any] | None:
    """Take the turn within `limit` seconds. If the transaction has not begun yet, this is one round trip in all.

    Statements that are sent together have no parameters, so their two numbers are formatted into the text.
    """
    driver: Any = connection.Database  # type: ignore[attr-defined]  # psycopg, not imported where it is not needed
    raw = connection.connection.pgconn
    values = new_moment(), environment_id
    started = time.monotonic()
    try:
        if raw.transaction_status != driver.pq.TransactionStatus.IDLE:
            if limit < math.inf:  # else leave the application's own timeout alone
                cursor.execute(_limit(limit))
            cursor.execute(_NEXT_TURN, values)
            return cursor.fetchone()
        with connection.wrap_database_errors:
            begin = f"BEGIN; {_limit(limit)}" if limit < math.inf else "BEGIN"
            raw.send_query(f"{begin}; {_NEXT_TURN.replace('%s', '%d') % values}".encode())
            taken = connection.connection.wait(driver.generators.execute(raw))[-1]
            if taken.status != driver.pq.ExecStatus.TUPLES_OK:
                raise driver.errors.error_from_result(taken)
            if not taken.ntuples:
                return None
            texts = [taken.get_value(0, column) for column in range(taken.nfields)]
            return [None if text is None else int(text) for text in texts]
    except OperationalError as error:
        if was_cancelled(error) and limit <= time.monotonic() - started:
            raise Busy(settings.WRITE_TIMEOUT) from error
        raise


def _limit(seconds: float) -> str:
    """Return the statement that sets PostgreSQL's statement timeout for the rest of the transaction."""
    return f"SET LOCAL statement_timeout = {0 if seconds == math.inf else max(1, math.ceil(seconds * 1000))}"


def claim(environment_id: int, offsets: int) -> None:
    """Reserve this many more offsets for the same transaction, following its turn's offset."""
    if offsets:
        with connection.cursor() as cursor:
            cursor.execute(
                'UPDATE authz_environment SET "offset" = "offset" + %s WHERE id = %s', (offsets, environment_id)
            )


def current_offset(environment_id: int) -> int:
    """Return the offset of the last committed change."""
    with connection.cursor() as cursor:
        cursor.execute('SELECT "offset" FROM authz_environment WHERE id = %s', (environment_id,))
        row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    return row[0]
