"""Changes, one after the other, and the counter that each of an environment moves: what clients see as `OsoOffset`.

Waiting for one's turn is not asking: it has a limit of its own, and whoever meets it may try again.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from sqlite3 import SQLITE_BUSY
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, InternalError, OperationalError, connection, connections, transaction
from django.db.backends.utils import CursorWrapper

from policy import at_work, noticing
from policy.errors import Busy, Cancelled, NoPrimary, NotFound
from policy.models import new_moment

SHORTEST_PAUSE, LONGEST_PAUSE = 0.0002, 0.005  # seconds between looks at whether an SQLite file is free
READ_ONLY = "25006"  # PostgreSQL's code where a server takes no changes: it is a standby, or has become one
QUERY_CANCELED = "57014"  # PostgreSQL's code for a statement that ran out of time, or that somebody ended


@dataclass(frozen=True, slots=True)
class Turn:
    """A writer's place in its environment: the offset it commits, and the policy that holds until then."""

    offset: int
    policy_version_id: int | None
    ends_mark: int  # 0 as long as no fact has had an end


@contextmanager
def changing(waited: float = 0.0) -> Iterator[None]:
    """A transaction that changes something: all of it, or nothing and the reason.

    It has `waited` for its turn so many seconds already, and waits no longer than `WRITE_TIMEOUT` in all.
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
            mine.close()  # the next one is to a server that takes changes
        raise NoPrimary from error


class _Transaction(transaction.Atomic):
    """Begins when nobody writes to the SQLite file. SQLite itself looks less and less often, in the end ten times a
    second."""

    def __init__(self, waited: float):
        super().__init__(using=DEFAULT_DB_ALIAS, savepoint=False, durable=False)
        self.waited = waited

    def __enter__(self) -> None:
        mine = connections[DEFAULT_DB_ALIAS]
        if mine.vendor != "sqlite" or mine.in_atomic_block:
            super().__enter__()
            return
        mine.ensure_connection()
        mine.connection.execute("PRAGMA busy_timeout = 0")
        try:
            with noticing.noted("wait", of="turn"):
                self._await_file(time.monotonic() + left(self.waited))
        finally:
            usual = mine.settings_dict["OPTIONS"]["timeout"]
            mine.connection.execute(f"PRAGMA busy_timeout = {usual * 1000:.0f}")

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


def left(waited: float) -> float:
    """How many seconds more a change may wait for others."""
    return max(0.0, settings.WRITE_TIMEOUT - waited) if settings.WRITE_TIMEOUT else math.inf


def is_busy(error: Exception) -> bool:
    """Whether somebody else writes, and SQLite would not wait."""
    return getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF == SQLITE_BUSY


def was_cancelled(error: Exception) -> bool:
    return getattr(error.__cause__, "sqlstate", None) == QUERY_CANCELED


def advance(environment_id: int, waited: float = 0.0) -> Turn:
    """Take the environment's next turn. First thing in a writing transaction, so that writers queue here.

    The row stays locked until the transaction ends: writers of one environment follow each other, the
    policy cannot change under one, and with one lock that all take first there is no deadlock.
    """
    assert transaction.get_connection().in_atomic_block, "a turn is part of the transaction that changes something"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with noticing.noted("wait", of="turn"):
                _take(cursor, environment_id, left(waited))
        else:  # who has begun to change something has waited
            _take(cursor, environment_id, left(waited))
        row = cursor.fetchone()
        if waited > settings.WRITE_TIMEOUT / 10 and connection.vendor == "postgresql":
            _limit_statements(cursor, left(0))  # what waiting has left is too short for what follows
    if row is None:
        raise NotFound("the environment no longer exists")
    return Turn(*row)


def _take(cursor: CursorWrapper, environment_id: int, limit: float) -> None:
    started = time.monotonic()
    if connection.vendor == "postgresql":  # on SQLite, who has begun to change something has waited already
        _limit_statements(cursor, limit)
    try:
        cursor.execute(
            'UPDATE environment SET "offset" = "offset" + 1, moment = %s WHERE id = %s'
            ' RETURNING "offset", policy_version_id, ends_mark',
            (new_moment(), environment_id),
        )
    except OperationalError as error:
        if was_cancelled(error) and limit <= time.monotonic() - started:
            raise Busy(settings.WRITE_TIMEOUT) from error
        raise


def _limit_statements(cursor: CursorWrapper, seconds: float) -> None:
    """For the rest of the transaction; together with its BEGIN, where that is still to be sent."""
    driver: Any = connection.Database  # type: ignore[attr-defined]  # psycopg, not imported where it is not needed
    raw = connection.connection.pgconn
    milliseconds = 0 if seconds == math.inf else max(1, math.ceil(seconds * 1000))
    limit = f"SET LOCAL statement_timeout = {milliseconds}"
    if raw.transaction_status != driver.pq.TransactionStatus.IDLE:
        cursor.execute(limit)
        return
    with connection.wrap_database_errors:
        at_work.begun(connection.connection)
        try:
            begun = raw.exec_(f"BEGIN; {limit}".encode())
        finally:
            at_work.done(connection.connection)
        if raw.status != driver.pq.ConnStatus.OK:  # and the server could not say why
            raise driver.OperationalError(begun.get_error_message())
        if begun.status != driver.pq.ExecStatus.COMMAND_OK:
            raise driver.errors.error_from_result(begun)


def claim(environment_id: int, offsets: int) -> None:
    """For others of the same transaction, those that follow its turn's."""
    if offsets:
        with connection.cursor() as cursor:
            cursor.execute('UPDATE environment SET "offset" = "offset" + %s WHERE id = %s', (offsets, environment_id))


def current_offset(environment_id: int) -> int:
    """The offset of the last committed change."""
    with connection.cursor() as cursor:
        cursor.execute('SELECT "offset" FROM environment WHERE id = %s', (environment_id,))
        row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    return row[0]
