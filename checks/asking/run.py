"""Run statements on the default database by the driver's fastest path, within the question's deadline."""

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
    # Called for each question. Reads the settings, since looking up the thread's connection is slower.
    return _DIALECTS[connections.settings[DEFAULT_DB_ALIAS]["ENGINE"]]


def question_time() -> Deadline:
    """Return a deadline for a question, to be opened around all work for it."""
    return Deadline(configured.STATEMENT_TIMEOUT)


def current_time() -> int:
    """Return the time of the database's clock, in whole seconds since 1970."""
    given = given_time()
    return clock.now() // 1_000_000 if given is None else given


def given_time() -> int | None:
    """Return the current time to pass to statements; None if the database has a clock of its own."""
    return None if dialect().has_clock else int(time_here())


def execute(statement: Statement, slots: dict[str, object]) -> list[Fetched]:
    values = statement.values(slots)
    mine = connections[DEFAULT_DB_ALIAS]  # Django's `connection` looks it up for each attribute
    if mine.connection is None:
        mine.ensure_connection()
    time = deadline.current() or question_time()
    began = spans.now() if spans.is_on else 0.0
    try:
        rows = _driver(mine.vendor).execute(mine.connection, statement.sql, values, time)
    except Exception:
        with _noted_failure(began), mine.wrap_database_errors:  # turns a driver's error into Django's
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
    """Return the row of numbers that a statement finds by one value; None if the caller has to use `execute`.

    For statements that read a row or two by key, so often that deadlines and turns would cost more than they do.
    """
    mine = connections[DEFAULT_DB_ALIAS]
    if mine.connection is None:
        return None
    began = spans.now() if spans.is_on else 0.0
    try:
        row = _driver(mine.vendor).glance(mine.connection, sql, value)
    except Exception:  # `execute` meets the same error and handles it
        return None
    if row is not None and spans.is_on:
        spans.fetched(began, 1)
    return row


def answer(statement: Statement, rounds: Sequence[Rounds], slots: dict[str, object]) -> list[Fetched]:
    """Run the rounds that compute what a statement reads, then the statement, in one snapshot. Return its rows."""
    if not rounds:
        return execute(statement, slots)
    with question_time(), snapshot():
        return execute(statement, evaluate_all(rounds, execute, slots))


@contextmanager
def snapshot() -> Iterator[None]:
    """Run the statements inside in one snapshot. Uses the current transaction if there is one."""
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
            if in_transaction():  # ending it failed; later questions would see the same snapshot
                mine.close()


@contextmanager
def limited(seconds: float | None, processor: float = inf) -> Iterator[None]:
    """Limit the statements inside to `seconds`. The surrounding snapshot remains usable if one is rejected.

    None is no limit. `processor` is as in `deadline.shortened`, and also limits statements on a server.
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
        except Crowded:  # callers do without the answer, as after a timeout
            raise QueryTooSlow(seconds) from None


def limit(seconds: float) -> None:
    """Limit each statement until the snapshot, or the `limited` block, ends. A database in this process ignores it."""
    assert in_transaction(), "a limit is one within a snapshot"
    mine = connections[DEFAULT_DB_ALIAS]
    with mine.wrap_database_errors:
        _driver(mine.vendor).limit(mine.connection, seconds)


def in_transaction() -> bool:
    mine = connections[DEFAULT_DB_ALIAS]
    return mine.connection is not None and _driver(mine.vendor).in_transaction(mine.connection)


class _Driver(Protocol):
    """The interface of a database's driver."""

    def execute(self, raw: Any, sql: str, values: Sequence[object], time: Deadline) -> list[tuple]: ...
    def glance(self, raw: Any, sql: str, value: str) -> Fetched | None: ...
    def snapshot(self, raw: Any) -> AbstractContextManager[None]: ...
    def limited(self, raw: Any, seconds: float) -> AbstractContextManager[None]: ...
    def limit(self, raw: Any, seconds: float) -> None: ...
    def in_transaction(self, raw: Any) -> bool: ...


@cache
def _driver(vendor: str) -> _Driver:
    """Import only the driver in use: importing PostgreSQL's takes longer than a command that doesn't need it."""
    return cast(_Driver, import_module(_DRIVERS[vendor]))


_DRIVERS = {"postgresql": "checks.asking.postgresql", "sqlite": "checks.asking.sqlite"}


@contextmanager
def in_memory() -> Iterator[None]:
    """Run this process's statements in an in-memory SQLite without tables: for commands that need no database."""
    usual = connections.settings[DEFAULT_DB_ALIAS], connections[DEFAULT_DB_ALIAS]
    given = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    connections.settings[DEFAULT_DB_ALIAS] = connections.configure_settings({DEFAULT_DB_ALIAS: given})[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS].close()
        connections.settings[DEFAULT_DB_ALIAS], connections[DEFAULT_DB_ALIAS] = usual
