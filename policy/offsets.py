"""Changes, one after the other, and the counter that each of an environment moves: what clients see as `OsoOffset`.

Waiting for one's turn is not asking: it has a limit of its own, and whoever meets it may try again.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from sqlite3 import SQLITE_BUSY

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper

from policy.errors import Busy, Cancelled, NotFound
from policy.models import new_moment

QUERY_CANCELED = "57014"  # PostgreSQL's code for a statement that ran out of time, or that somebody ended


@dataclass(frozen=True, slots=True)
class Turn:
    """A writer's place in its environment: the offset it commits, and the policy that holds until then."""

    offset: int
    policy_version_id: int | None


@contextmanager
def changing() -> Iterator[None]:
    """A transaction that changes something: all of it, or nothing and the reason."""
    try:
        with transaction.atomic(savepoint=False):
            yield
    except OperationalError as error:
        if was_cancelled(error):
            raise Cancelled from error
        if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF == SQLITE_BUSY:
            raise Busy(settings.WRITE_TIMEOUT) from error
        raise


def was_cancelled(error: Exception) -> bool:
    return getattr(error.__cause__, "sqlstate", None) == QUERY_CANCELED


def advance(environment_id: int) -> Turn:
    """Take the environment's next turn. First thing in a writing transaction, so that writers queue here.

    The row stays locked until the transaction ends: writers of one environment follow each other, the
    policy cannot change under one, and with one lock that all take first there is no deadlock.
    """
    assert transaction.get_connection().in_atomic_block, "a turn is part of the transaction that changes something"
    with connection.cursor() as cursor:
        _take(cursor, environment_id)
        row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    return Turn(*row)


def claim(environment_id: int, offsets: int) -> None:
    """For others of the same transaction, those that follow its turn's."""
    if offsets:
        with connection.cursor() as cursor:
            cursor.execute('UPDATE environment SET "offset" = "offset" + %s WHERE id = %s', (offsets, environment_id))


def _take(cursor: CursorWrapper, environment_id: int) -> None:
    limit, started = settings.WRITE_TIMEOUT, time.monotonic()
    if connection.vendor == "postgresql":  # on SQLite, who has begun to change something has waited already
        cursor.execute(f"SET LOCAL statement_timeout = {ceil(limit * 1000)}")
    try:
        cursor.execute(
            'UPDATE environment SET "offset" = "offset" + 1, moment = %s WHERE id = %s'
            ' RETURNING "offset", policy_version_id',
            (new_moment(), environment_id),
        )
    except OperationalError as error:
        if was_cancelled(error) and 0 < limit <= time.monotonic() - started:
            raise Busy(limit) from error
        raise


def current_offset(environment_id: int) -> int:
    """The offset of the last committed change."""
    with connection.cursor() as cursor:
        cursor.execute('SELECT "offset" FROM environment WHERE id = %s', (environment_id,))
        row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    return row[0]
