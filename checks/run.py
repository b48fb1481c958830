"""Runs finished statements on the default database, each by its driver's shortest way, within a time limit."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from checks import libpq
from checks.engine.dialects import Dialect, PostgreSQL, SQLite
from checks.engine.rounds import Rounds, worked_out
from checks.engine.text import Statement
from checks.errors import QueryTooSlow, StatementTooLarge

_SQLITE, _POSTGRESQL = SQLite(), PostgreSQL()
_mine = threading.local()
_STEPS = 20_000  # of SQLite's machine between two looks at the clock: about a millisecond
_TOO_LARGE = re.compile(r"too many|too large|at most \d+ tables|parser stack overflow|limit .*exceeded")


def dialect() -> Dialect:
    return _POSTGRESQL if connections[DEFAULT_DB_ALIAS].vendor == "postgresql" else _SQLITE


def execute(statement: Statement, slots: dict[str, object]) -> list[tuple]:
    values = statement.values(slots)
    mine = connections[DEFAULT_DB_ALIAS]  # Django's `connection` looks it up again for each attribute
    if mine.connection is None:
        mine.ensure_connection()
    with mine.wrap_database_errors:
        if mine.vendor == "postgresql":
            return _on_postgresql(mine.connection, statement.sql, values)
        return _on_sqlite(mine.connection, statement.sql, values)


def answer(statement: Statement, rounds: Sequence[Rounds], slots: dict[str, object]) -> list[tuple]:
    """The rows of a statement, after what it reads has been worked out in rounds. All of it sees one moment."""
    if not rounds:
        return execute(statement, slots)
    limit = _limit()
    deadline = time.monotonic() + (limit or inf)

    def step(statement: Statement, slots: dict[str, object]) -> list[tuple]:
        if time.monotonic() > deadline:
            raise QueryTooSlow(limit)
        return execute(statement, slots)

    with snapshot():
        for each in rounds:
            slots = slots | worked_out(each, step, slots)
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
    before, _mine.limit = getattr(_mine, "limit", None), seconds
    begin(raw, seconds)
    try:
        yield
    finally:
        _mine.limit = before
        with suppress(psycopg.Error):
            end(raw)


_LIMITS = {
    "postgresql": (libpq.begin_limit, libpq.end_limit),
    "sqlite": (lambda raw, seconds: None, lambda raw: None),
}


def _limit() -> float:
    """Seconds that a statement may take; 0 is no limit."""
    wanted = getattr(_mine, "limit", None)
    return settings.STATEMENT_TIMEOUT if wanted is None else wanted


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


# ---- PostgreSQL: the limit is the connection's `statement_timeout` ---------------------------------------------


def _on_postgresql(raw: psycopg.Connection, sql: str, values: list[object]) -> list[tuple]:
    try:
        if libpq.can_run(raw):
            return libpq.rows(raw, sql, values)
        with psycopg.RawCursor(raw) as cursor:
            return cursor.execute(sql.encode(), values).fetchall()
    except psycopg.errors.QueryCanceled:
        raise QueryTooSlow(_limit()) from None
    except (psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex, psycopg.errors.TooManyColumns):
        raise StatementTooLarge from None


# ---- SQLite: a look at the clock now and then -------------------------------------------------------------------


def _on_sqlite(raw: sqlite3.Connection, sql: str, values: list[object]) -> list[tuple]:
    limit = _limit()
    if limit <= 0:
        return raw.execute(sql, values).fetchall()
    deadline = time.monotonic() + limit
    raw.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        return raw.execute(sql, values).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise QueryTooSlow(limit) from None
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR and _TOO_LARGE.search(str(error)):
            raise StatementTooLarge from None
        raise
    finally:
        raw.set_progress_handler(None, 0)
