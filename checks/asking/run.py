"""Run statements on the default database by the driver's fastest path, within the question's deadline.

PostgreSQL's driver is a module of its own (`postgresql`), since importing its library takes long.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from importlib import import_module
from math import inf
from time import monotonic, sleep
from time import time as time_here
from typing import Any, Protocol, cast

from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.module_loading import import_string

from checks.asking import limits
from checks.asking.limits import LONG, Deadline, SlowStatementLimit, SlowStatementTurn, known
from checks.engine.sql.bound import NO_TABLES, BoundTables
from checks.engine.sql.rounds import Fetched, Rounds, evaluate_all
from checks.engine.sql.text import Dialect, PostgreSQL, SQLite, Statement
from checks.errors import QueryTooSlow, StatementTooLarge, TooManySlowQueries
from policy.core import clock, journal, memory, spans
from policy.core.config import is_service, settings
from policy.core.memory import budget

_DIALECTS: dict[str, Dialect] = {"django.db.backends.sqlite3": SQLite(), "django.db.backends.postgresql": PostgreSQL()}
MOST_TURNS = 1000


def dialect() -> Dialect:
    # Called for each question. Reads the settings, since looking up the thread's connection is slower.
    return _DIALECTS[connections.settings[DEFAULT_DB_ALIAS]["ENGINE"]]


# Inside an application (a Django project without `authz_project`), questions run in its transactions, and rows of its
# tables are facts. The app above finds them. It is named here and imported when needed.
BOUND_TABLES = "localsql.django.tables.current"


@cache
def _application() -> Callable[[], BoundTables] | None:
    found: Callable[[], BoundTables] | None = None if is_service() else import_string(BOUND_TABLES)
    return found


def is_embedded() -> bool:
    """Return whether the service is part of an application."""
    return _application() is not None


def bound_tables() -> BoundTables:
    """Return the tables of the application that the service is part of."""
    found = _application()
    return NO_TABLES if found is None else found()


def question_time() -> Deadline:
    """Return a deadline for a question, to be opened around all work for it."""
    return Deadline(settings.STATEMENT_TIMEOUT)


def current_time() -> int:
    """Return the time of the database's clock, in whole seconds since 1970."""
    given = given_time()
    return clock.now() // 1_000_000 if given is None else int(given)


def given_time() -> str | None:
    """Return the current time to pass to statements; None if the database has a clock of its own.

    It is a text, as all ids are: SQLite finds a number unequal to any text from a table that declares no types.
    """
    return None if dialect().has_clock else str(int(time_here()))


def execute(statement: Statement, slots: dict[str, object]) -> list[Fetched]:
    values = statement.values(slots | statement.constants)
    mine = connections[DEFAULT_DB_ALIAS]  # Django's `connection` looks it up for each attribute
    if mine.connection is None:
        mine.ensure_connection()
    time = limits.current() or question_time()
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

    None is no limit. `processor` is as in `limits.shortened`, and also limits statements on a server.
    """
    if seconds is None:
        yield
        return
    assert in_transaction(), "a limit is one within a snapshot"
    mine = connections[DEFAULT_DB_ALIAS]
    on_server = min(seconds, processor)
    with _driver(mine.vendor).limited(mine.connection, on_server), limits.shortened(seconds, processor):
        try:
            yield
        except TooManySlowQueries:  # callers do without the answer, as after a timeout
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
    return SqliteDriver() if vendor == "sqlite" else cast(_Driver, import_module("checks.asking.postgresql"))


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


# ---- turns --------------------------------------------------------------------------------------------------------


def at_once() -> int:
    """Return how many slow statements may run at once: one less than there are processors.

    0, no limit, if other machines' processors run them.
    """
    if settings.REPLICAS or not is_here(settings.DATABASES["default"]):
        return 0
    return min(max(1, (os.cpu_count() or 1) - 1), MOST_TURNS)


def is_here(database: dict) -> bool:
    """Return whether the database is on this machine."""
    options = database["OPTIONS"]
    hosts = str(options.get("hostaddr") or options.get("host") or database["HOST"]).split(",")
    is_near = all(host in ("", "localhost", "::1") or host.startswith(("/", "127.")) for host in hosts)
    return is_near and "service" not in options


turns = SlowStatementLimit(at_once())  # of all slow statements


# ---- SQLite -------------------------------------------------------------------------------------------------------
# Statements run in this process. Their time and memory are checked at intervals. What a statement sorts and
# materialises stays in memory, and counts against the budget (`policy/core/memory.py`): temporary files could fill
# the disk, and then no change could be stored.

_TURN = 0.5  # seconds that a slow statement runs before it yields to other slow ones
_ASIDE = 0.000_001  # seconds that a slow statement sleeps at each check of the clock; about 60 µs in practice
# Steps of SQLite's virtual machine between checks of the clock: about a millisecond. It counts those of all runs of a
# statement, so the first check may come at once.
_STEPS = 20_000
_BRIEF = 0.001  # seconds that a statement runs without giving up its thread's slot
# If WITH clauses nest too deep, SQLite does not find the outer tables that the statement itself defines.
_FORGOTTEN = r"no such table: (?:inline_fact|(?:[qr]\d+)*[agrw]\d+)$"
_TOO_LARGE = re.compile(rf"too many|too large|at most \d+ tables|parser stack overflow|limit .*exceeded|{_FORGOTTEN}")


class SqliteDriver:
    def execute(self, raw: sqlite3.Connection, sql: str, values: Sequence[object], time: Deadline) -> list[tuple]:
        time.left()  # raises if none is left
        clock = _Clock(time, sql, values)
        cursor = None
        raw.set_progress_handler(clock.is_over, _STEPS)
        try:
            cursor = raw.execute(sql, values)
            return memory.fetched(cursor)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise clock.refusal from None
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR and _TOO_LARGE.search(str(error)):
                raise StatementTooLarge from None
            raise
        finally:
            raw.set_progress_handler(None, 0)
            if cursor is not None:
                cursor.close()
            clock.end(raw)

    def glance(self, raw: sqlite3.Connection, sql: str, value: str) -> tuple | None:
        """Return the single row, or None."""
        rows = raw.execute(sql, (value,)).fetchall()
        return rows[0] if rows else None

    @contextmanager
    def snapshot(self, raw: sqlite3.Connection) -> Iterator[None]:
        raw.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):  # a lost connection has no transaction to end
                raw.execute("ROLLBACK")

    @contextmanager
    def limited(self, raw: sqlite3.Connection, seconds: float) -> Iterator[None]:
        """Do nothing: the progress handler checks the deadline, which the caller has shortened."""
        yield

    def limit(self, raw: sqlite3.Connection, seconds: float) -> None:
        """Do nothing, like `limited`."""

    def in_transaction(self, raw: sqlite3.Connection) -> bool:
        return raw.in_transaction


class _Clock:
    """The progress handler of a statement. A slow one needs a turn: from the start if it is known to be slow."""

    _turn: SlowStatementTurn | None = None
    _has_slot = True
    _refusal: BaseException | None = None
    _holding: memory.Holding | None = None  # from the first check on

    def __init__(self, time: Deadline, sql: str, values: Sequence[object]):
        self._time, self._asked = time, (sql, values)
        self._is_known = known.times(sql, values) > 0
        self._began = monotonic()
        self._free_until = 0.0 if self._is_known else self._began + LONG

    @property
    def refusal(self) -> BaseException:
        """Return the error that ended the statement."""
        return self._refusal or QueryTooSlow(self._time.seconds)

    def is_over(self) -> bool:
        """Return whether SQLite has to end the statement. If it needs a turn, wait for that first."""
        try:
            self._go_on()
        except BaseException as refusal:  # SQLite would swallow an exception raised in here
            self._refusal = refusal
        return self._refusal is not None

    def end(self, raw: sqlite3.Connection) -> None:
        if self._holding is not None and budget.end_statement(self._holding) >= memory.LARGE:
            with suppress(sqlite3.Error):
                raw.execute("PRAGMA shrink_memory")
        if self._turn:
            self._turn.end()
        elif self._is_known and not self._refusal:
            known.forget(*self._asked)
        self._refusal = None  # its traceback keeps this object and all fetched rows alive

    def _go_on(self) -> None:
        """Yield to other threads as needed; raise if the time is over."""
        if self._time.is_over():
            raise self._turn.refusal if self._turn else QueryTooSlow(self._time.seconds)
        if (holding := self._holding or memory.holding()) is not None:
            self._holding = holding
            budget.look(holding)
        if self._has_slot and monotonic() - self._began > _BRIEF:
            self._has_slot = False
            journal.give_up_slot()
        if turns.count and monotonic() >= self._free_until:
            self._take_turn()
        elif self._turn:
            # The operating system might keep others waiting behind this thread for milliseconds, though another
            # processor is idle. A thread that sleeps lets them run, and wakes up on an idle processor.
            sleep(_ASIDE)

    def _take_turn(self) -> None:
        if not self._is_known:
            self._is_known = True
            known.note(*self._asked, times=1)
        if self._turn:
            self._turn.pass_on()
        else:
            self._turn = SlowStatementTurn(turns, self._time)
        self._free_until = monotonic() + _TURN
