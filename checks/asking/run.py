"""Runs finished statements on the default database, each by its driver's shortest way, within its question's time."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil, inf

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from checks.asking import deadline, libpq
from checks.asking.deadline import Deadline
from checks.engine.sql.dialects import Dialect, PostgreSQL, SQLite
from checks.engine.sql.rounds import Fetched, Rounds, worked_out
from checks.engine.sql.text import Statement
from checks.errors import QueryTooSlow, StatementTooLarge
from policy.errors import Cancelled

_DIALECTS: dict[str, Dialect] = {"django.db.backends.sqlite3": SQLite(), "django.db.backends.postgresql": PostgreSQL()}
_STEPS = 20_000  # of SQLite's machine between two looks at the clock: about a millisecond
_FRESH = 0.9  # of a question's time: with so much left, the connection's own limit is near enough
# Of what nests too deep in a WITH, SQLite forgets the outer tables, which are the statement's own.
_FORGOTTEN = r"no such table: (?:inline_fact|(?:[qr]\d+)*[agrw]\d+)$"
_TOO_LARGE = re.compile(rf"too many|too large|at most \d+ tables|parser stack overflow|limit .*exceeded|{_FORGOTTEN}")


def dialect() -> Dialect:
    # Each question asks for it: by the settings, since finding the thread's connection takes longer than the rest.
    return _DIALECTS[connections.settings[DEFAULT_DB_ALIAS]["ENGINE"]]


def question_time() -> Deadline:
    """Open it around all that is done for a question."""
    return Deadline(settings.STATEMENT_TIMEOUT)


def execute(statement: Statement, slots: dict[str, object]) -> list[Fetched]:
    values = statement.values(slots)
    mine = connections[DEFAULT_DB_ALIAS]  # Django's `connection` looks it up again for each attribute
    if mine.connection is None:
        mine.ensure_connection()
    time = deadline.current() or question_time()
    with mine.wrap_database_errors:
        if mine.vendor == "postgresql":
            return _on_postgresql(mine.connection, statement.sql, values, time)
        return _on_sqlite(mine.connection, statement.sql, values, time)


def answer(statement: Statement, rounds: Sequence[Rounds], slots: dict[str, object]) -> list[Fetched]:
    """The rows of a statement, after what it reads has been worked out in rounds. All of it sees one moment."""
    if not rounds:
        return execute(statement, slots)
    with question_time(), snapshot():
        for each in rounds:
            slots = slots | worked_out(each, execute, slots)
        return execute(statement, slots)


@contextmanager
def snapshot() -> Iterator[None]:
    """What is executed inside sees the facts of one moment. A transaction that is open already is taken as it is."""
    mine = connections[DEFAULT_DB_ALIAS]
    if mine.connection is None:
        mine.ensure_connection()
    raw = mine.connection
    if _in_transaction(raw):
        yield
        return
    begin, end = _SNAPSHOTS[mine.vendor]
    with mine.wrap_database_errors:
        begin(raw)
    try:
        yield
    finally:
        with suppress(psycopg.Error, sqlite3.Error):  # a connection that is lost has no transaction to end
            end(raw)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Inside of a snapshot, what is executed inside takes no longer; what is refused leaves the snapshot as it was."""
    raw = connections[DEFAULT_DB_ALIAS].connection
    assert raw is not None and _in_transaction(raw), "a limit is one within a snapshot"
    begin, end = _LIMITS[connections[DEFAULT_DB_ALIAS].vendor]
    begin(raw, seconds)
    try:
        with deadline.shortened(seconds):
            yield
    finally:
        with suppress(psycopg.Error):
            end(raw)


_LIMITS = {
    "postgresql": (libpq.begin_limit, libpq.end_limit),
    "sqlite": (lambda raw, seconds: None, lambda raw: None),
}
_SNAPSHOTS = {
    "postgresql": (libpq.begin_snapshot, libpq.end_snapshot),
    "sqlite": (lambda raw: raw.execute("BEGIN"), lambda raw: raw.execute("ROLLBACK")),
}


def in_transaction() -> bool:
    raw = connections[DEFAULT_DB_ALIAS].connection
    return raw is not None and _in_transaction(raw)


def _in_transaction(raw: sqlite3.Connection | psycopg.Connection) -> bool:
    if isinstance(raw, sqlite3.Connection):
        return raw.in_transaction
    return raw.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE


# ---- PostgreSQL: a statement has the connection's `statement_timeout`, or what the question has left ------------


def _on_postgresql(raw: psycopg.Connection, sql: str, values: list[object], time: Deadline) -> list[tuple]:
    left = time.left()
    try:
        if not libpq.can_run(raw):
            with psycopg.RawCursor(raw) as cursor:
                return cursor.execute(sql.encode(), values).fetchall()
        if left >= time.seconds * _FRESH:
            return libpq.rows(raw, sql, values)
        with snapshot():
            libpq.limit(raw, ceil(left * 1000))
            return libpq.rows(raw, sql, values)
    except psycopg.errors.QueryCanceled:
        raise QueryTooSlow(time.seconds) if time.is_over() else Cancelled from None
    except (psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex, psycopg.errors.TooManyColumns):
        raise StatementTooLarge from None


# ---- SQLite: a look at the clock now and then -------------------------------------------------------------------


def _on_sqlite(raw: sqlite3.Connection, sql: str, values: list[object], time: Deadline) -> list[tuple]:
    if time.left() == inf:
        return raw.execute(sql, values).fetchall()
    raw.set_progress_handler(time.is_over, _STEPS)
    try:
        return raw.execute(sql, values).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise QueryTooSlow(time.seconds) from None
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR and _TOO_LARGE.search(str(error)):
            raise StatementTooLarge from None
        raise
    finally:
        raw.set_progress_handler(None, 0)
