"""Runs finished statements on the default database, each by its driver's shortest way, within its question's time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib import import_module
from math import inf
from time import time as time_here
from typing import Any, Protocol, cast

from django.db import DEFAULT_DB_ALIAS, connections

from checks.asking import deadline
from checks.asking.deadline import Deadline
from checks.engine.sql.dialects import Dialect, PostgreSQL, SQLite
from checks.engine.sql.rounds import Fetched, Rounds, evaluate_all
from checks.engine.sql.text import Statement
from checks.errors import Crowded, QueryTooSlow
from policy.ground import clock, spans
from policy.ground.cache import configured

_DIALECTS: dict[str, Dialect] = {"django.db.backends.sqlite3": SQLite(), "django.db.backends.postgresql": PostgreSQL()}


def dialect() -> Dialect:
    # Each question calls this. It goes by the settings, since finding the thread's connection takes longer.
    return _DIALECTS[connections.settings[DEFAULT_DB_ALIAS]["ENGINE"]]


def question_time() -> Deadline:
    """Return a question's deadline, to be opened around all that is done for it."""
    return Deadline(configured.STATEMENT_TIMEOUT)


def current_time() -> int:
    """Return the time by the database's clock, in whole seconds since 1970."""
    given = given_time()
    return clock.now() // 1_000_000 if given is None else given


def given_time() -> int | None:
    """Return the time that statements are given as now; None where the database has a clock of its own."""
    return None if dialect().has_clock else int(time_here())


def execute(statement: Statement, slots: dict[str, object]) -> list[Fetched]:
    values = statement.values(slots)
    mine = connections[DEFAULT_DB_ALIAS]  # Django's `connection` looks it up again for each attribute
    if mine.connection is None:
        mine.ensure_connection()
    time = deadline.current() or question_time()
    began = spans.now() if spans.is_on else 0.0
    try:
        rows = _driver(mine.vendor).execute(mine.connection, statement.sql, values, time)
    except Exception:
        with _noted_failure(began), mine.wrap_database_errors:  # in place of a driver's error comes Django's
            raise
    if spans.is_on:
        spans.fetched(began, len(rows))
    return rows


@contextmanager
def _noted_failure(began: float) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if spans.is_on:
            spans.note("statement", began, failed=type(error).__name__)
        raise


def glance(sql: str, value: str) -> Fetched | None:
    """Return the row of numbers that a statement finds by one value; None where the caller has to `execute` it.

    This is for statements that read a row or two by key, and so often that deadlines and turns would cost more.
    """
    mine = connections[DEFAULT_DB_ALIAS]
    if mine.connection is None:
        return None
    began = spans.now() if spans.is_on else 0.0
    try:
        row = _driver(mine.vendor).glance(mine.connection, sql, value)
    except Exception:  # `execute` meets it, too, and sees to it
        return None
    if row is not None and spans.is_on:
        spans.fetched(began, 1)
    return row


def answer(statement: Statement, rounds: Sequence[Rounds], slots: dict[str, object]) -> list[Fetched]:
    """Run the rounds that work out what a statement reads, then the statement, in one snapshot. Return its rows."""
    if not rounds:
        return execute(statement, slots)
    with question_time(), snapshot():
        return execute(statement, evaluate_all(rounds, execute, slots))


@contextmanager
def snapshot() -> Iterator[None]:
    """Run statements inside in one snapshot. A transaction that is open already is used as it is."""
    mine = connections[DEFAULT_DB_ALIAS]
    if mine.connection is None:
        mine.ensure_connection()
    if in_transaction():
        yield
    else:
        try:
            with mine.wrap_database_errors, _driver(mine.vendor).snapshot(mine.connection):
                yield
        finally:
            if in_transaction():  # ending it failed, and later questions would see the same snapshot
                mine.close()


@contextmanager
def limited(seconds: float | None, processor: float = inf) -> Iterator[None]:
    """Limit statements inside to so many seconds, within a snapshot, which goes on after one that is refused.

    None limits nothing. `processor` is as in `deadline.shortened`; a statement on a server takes no longer, either.
    """
    if seconds is None:
        yield
        return
    assert in_transaction(), "a limit is one within a snapshot"
    mine = connections[DEFAULT_DB_ALIAS]
    on_server = min(seconds, processor)
    with _driver(mine.vendor).limited(mine.connection, on_server), deadline.shortened(seconds, processor):
        try:
            yield
        except Crowded:  # callers do without the answer, as they do if it is too slow
            raise QueryTooSlow(seconds) from None


def limit(seconds: float) -> None:
    """Limit each statement until the snapshot, or `limited` in it, ends. A database in this process ignores it."""
    assert in_transaction(), "a limit is one within a snapshot"
    mine = connections[DEFAULT_DB_ALIAS]
    with mine.wrap_database_errors:
        _driver(mine.vendor).limit(mine.connection, seconds)


def in_transaction() -> bool:
    mine = connections[DEFAULT_DB_ALIAS]
    return mine.connection is not None and _driver(mine.vendor).in_transaction(mine.connection)


class _Driver(Protocol):
    """How a database's driver is used."""

    def execute(self, raw: Any, sql: str, values: Sequence[object], time: Deadline) -> list[tuple]: ...
    def glance(self, raw: Any, sql: str, value: str) -> Fetched | None: ...
    def snapshot(self, raw: Any) -> AbstractContextManager[None]: ...
    def limited(self, raw: Any, seconds: float) -> AbstractContextManager[None]: ...
    def limit(self, raw: Any, seconds: float) -> None: ...
    def in_transaction(self, raw: Any) -> bool: ...


@cache
def _driver(vendor: str) -> _Driver:
    """Import no driver but the one that is used: PostgreSQL's takes longer than a command that has no use for it."""
    return cast(_Driver, import_module(_DRIVERS[vendor]))


_DRIVERS = {"postgresql": "checks.asking.postgresql", "sqlite": "checks.asking.sqlite"}


@contextmanager
def in_memory() -> Iterator[None]:
    """Run this process's statements in an SQLite in memory, without tables: for commands that need no database."""
    usual = connections.settings[DEFAULT_DB_ALIAS], connections[DEFAULT_DB_ALIAS]
    given = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    connections.settings[DEFAULT_DB_ALIAS] = connections.configure_settings({DEFAULT_DB_ALIAS: given})[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS].close()
        connections.settings[DEFAULT_DB_ALIAS], connections[DEFAULT_DB_ALIAS] = usual
