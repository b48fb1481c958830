"""Serialize writers, and record every committed change as a revision."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from itertools import count
from secrets import randbits
from sqlite3 import SQLITE_BUSY
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.db import DEFAULT_DB_ALIAS, Error, InternalError, OperationalError, connection, connections, transaction
from django.db.backends.utils import CursorWrapper
from django.http import HttpRequest

from policy.core import spaces, spans
from policy.core.clock import MOMENT_BITS, is_citus, now_in
from policy.core.config import is_service, settings
from policy.errors import Busy, Cancelled, IsCopy, Moved, NoPrimary, NotFound, one_line
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
    """The author of a change (`key 3 "billing"`, `admin ann`, `command load_facts`), and the request's id.

    `user_id` is that of a user of the admin, whose name may change.
    """

    author: str = ""
    request_id: str = ""
    user_id: int | None = None


NOBODY = By()


def by_command(name: str) -> By:
    return By(f"command {name}")


def by_admin(request: HttpRequest) -> By:
    """Return the user who is logged in to the admin, as the author of a change."""
    return By(f"admin {request.user.get_username()}", getattr(request, "request_id", ""), request.user.pk)


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
    rows = [value for each in changes for value in _values(each)]
    values = [environment_id, *rows, environment_id, changes[0].number - 1]
    with connection.cursor() as cursor:
        cursor.execute(_record_statement(connection.vendor, len(changes)), values)
    note_recorded(environment_id, changes)


@cache
def _record_statement(vendor: str, count: int) -> str:
    """Return the INSERT of this many revisions, which have the same time.

    It reads the preceding one as a table: Citus refuses a subquery among the values of an INSERT.
    """
    rows = ", ".join(["(%s, %s, %s, CAST(%s AS bigint), %s, %s, %s)"] * count)
    before = "SELECT MAX(at) AS at FROM authz_revision WHERE environment_id = %s AND number = %s"
    each = ", ".join(["column1", time_of_revision(vendor, "before.at"), *(f"column{place}" for place in range(2, 8))])
    return (
        f"INSERT INTO authz_revision ({COLUMNS})"
        f" SELECT %s, {each} FROM (VALUES {rows}) AS revision CROSS JOIN ({before}) AS before"
    )


def time_of_revision(vendor: str, before: str) -> str:
    """Return SQL for a revision's time, from SQL for the time of the preceding one, which may be NULL."""
    return f"{'MAX' if vendor == 'sqlite' else 'GREATEST'}({now_in(vendor)}, COALESCE({before}, 0))"


def note_recorded(environment_id: int, changes: Sequence[Done]) -> None:
    """Notify those who wait for changes of these revisions, once they are committed."""
    transaction.on_commit(partial(_tell, environment_id, changes[-1].number))
    if spans.is_on:
        transaction.on_commit(partial(_note, changes))


def _tell(environment_id: int, number: int) -> None:
    """Tell the server of the change, and note the position that a replica needs in order to show it."""
    for tell in commit_listeners:
        tell(environment_id)
    if settings.REPLICAS:
        note_change(environment_id, number)


def _note(changes: Sequence[Done]) -> None:
    space = spaces.current()
    for each in changes:
        spans.note("revision", kind=each.kind.value, inserted=each.inserted, deleted=each.deleted, space=space)
    spans.note("commit", changes=len(changes))


def _values(done: Done) -> Iterable[str | int | None]:
    yield from (done.number, done.by.author, done.by.request_id)
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
    moment: int  # random, and so only this turn's


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

    The turn reserves an offset; `claim` reserves more.
    """
    assert transaction.get_connection().in_atomic_block, "a turn is part of the transaction that changes something"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with spans.noted("wait", of="turn"):
                row = _turn_on_server(cursor, environment_id, left(waited))
            if waited > settings.WRITE_TIMEOUT / 10:  # the timeout for the wait may be too short for what follows
                _limit_statements(cursor, left(0))
        else:  # on SQLite, the transaction waited for its turn before it began
            cursor.execute(_NEXT_TURN, (randbits(MOMENT_BITS), environment_id))
            row = cursor.fetchone()
    if row is None:
        refuse_copy(environment_id)
        raise NotFound("the environment no longer exists")
    return WriterTurn(*row)


_NEXT_TURN = (
    """UPDATE authz_environment SET "offset" = "offset" + 1, moment = %s WHERE id = %s AND follows = ''"""
    ' RETURNING "offset", policy_version_id, ends_mark, moment'
)


def refuse_copy(environment_id: int) -> None:
    """Raise `IsCopy` if only another service may change the environment, `Moved` if it lives in another space now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT follows FROM authz_environment WHERE id = %s", (environment_id,))
        row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    if row[0]:
        raise Moved if row[0] == MOVED else IsCopy


def stay(environment_id: int) -> None:
    """Keep the environment in its space until this transaction ends; raise like `refuse_copy`.

    For changes that take no turn, those of keys, drafts and requests: a key is revoked at once, however long another
    change takes. A move waits for them (`CLOSE`).
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_advisory_xact_lock_shared({_KEYS_OF})", (environment_id,))
    refuse_copy(environment_id)


_KEYS_OF = "hashtext('authz keys'), %s::int"
CLOSE = f"SELECT pg_advisory_xact_lock({_KEYS_OF})"  # waits for what stays; what comes later is refused
MOVED = "moved"  # in place of a service that it follows: the environment lives in another space, or is about to


def _turn_on_server(cursor: CursorWrapper, environment_id: int, limit: float) -> Sequence[Any] | None:
    """Take the turn within `limit` seconds. If the transaction has not begun yet, this is one round trip in all.

    Statements that are sent together have no parameters, so their numbers are formatted into the text.
    """
    driver: Any = connection.Database  # type: ignore[attr-defined]  # psycopg, not imported where it is not needed
    raw = connection.connection.pgconn
    values = randbits(MOMENT_BITS), environment_id
    with _busy_after(limit):
        if raw.transaction_status != driver.pq.TransactionStatus.IDLE:
            _limit_statements(cursor, limit)
            cursor.execute(_NEXT_TURN, values)
            return cursor.fetchone()
        with connection.wrap_database_errors:
            raw.send_query(f"BEGIN; {_limit(limit)}; {_NEXT_TURN.replace('%s', '%d') % values}".encode())
            taken = connection.connection.wait(driver.generators.execute(raw))[-1]
            if taken.status != driver.pq.ExecStatus.TUPLES_OK:
                raise driver.errors.error_from_result(taken)
            if not taken.ntuples:
                return None
            texts = [taken.get_value(0, column) for column in range(taken.nfields)]
            return [None if text is None else int(text) for text in texts]


@contextmanager
def _busy_after(limit: float) -> Iterator[None]:
    """Raise `Busy` if a statement inside is cancelled after this many seconds: it has waited for its turn."""
    started = time.monotonic()
    try:
        yield
    except OperationalError as error:
        if was_cancelled(error) and limit <= time.monotonic() - started:
            raise Busy(settings.WRITE_TIMEOUT) from error
        raise


@contextmanager
def waiting_for_others() -> Iterator[None]:
    """Let the statements inside a writing transaction wait for a lock as long as a change may for its turn."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            _limit_statements(cursor, left(0))
    with _busy_after(left(0)):
        yield


SqlWithValues = tuple[str, Sequence[object]]  # with its parameters
Results = list[list[tuple[Any, ...]]]  # the rows of each statement


def next_turn_as(environment_id: int, turn: WriterTurn, waited: float) -> list[SqlWithValues]:
    """Return statements that wait for the next turn, and take it if policy and mark of expiries are those of `turn`.

    The turn gets the moment of `turn`, and claims no offset. What follows is planned for large tables, as it is
    prepared while those of a new service are small.
    """
    return [
        (
            "SELECT set_config('lock_timeout', %s, true), set_config('enable_seqscan', 'off', true)",
            (_milliseconds(left(waited)),),
        ),
        (
            "UPDATE authz_environment SET moment = %s WHERE id = %s"
            " AND policy_version_id IS NOT DISTINCT FROM %s AND ends_mark = %s AND follows = ''",
            (turn.moment, environment_id, turn.policy_version_id, turn.ends_mark),
        ),
    ]


def can_pipeline() -> bool:
    """Return whether `in_one_trip` can send statements together. Citus refuses some of those that are sent so."""
    is_server = connection.vendor == "postgresql" and connection.Database.Pipeline.is_supported()  # type: ignore[attr-defined]
    return is_server and not is_citus()


def in_one_trip(statements: Sequence[SqlWithValues]) -> Results | None:
    """Run statements as one transaction in one round trip to PostgreSQL, which gives each a snapshot of its own.

    Return the rows of each statement, as texts; None if one failed, and so nothing is changed. This uses the driver's
    lowest layer, as its own pipelines take longer than the statements.
    """
    connection.ensure_connection()
    raw: Any = connection.connection
    driver: Any = connection.Database  # type: ignore[attr-defined]  # psycopg, not imported where it is not needed
    with connection.wrap_database_errors:
        is_kept = keeps_prepared(raw)
        results = _piped(raw, partial(_send, raw, statements, is_kept))
        wanted = driver.pq.ExecStatus.COMMAND_OK, driver.pq.ExecStatus.TUPLES_OK
        wrong = next((each for each in results if each.status not in wanted), None)
        if wrong is not None:
            if driver.errors.error_from_result(wrong).sqlstate != _FORGOTTEN or not _prepared.get(raw):
                return None
            forget_prepared(raw)  # the driver drops all when a transaction is rolled back
            return in_one_trip(statements)
    return [
        [tuple([each.get_value(row, column) for column in range(each.nfields)]) for row in range(each.ntuples)]
        for each in results[-len(statements) :]
    ]


_FORGOTTEN = "26000"  # PostgreSQL's code for a prepared statement that does not exist
_prepared: WeakKeyDictionary[Any, dict[str, bytes]] = WeakKeyDictionary()  # by connection: names of statements, by SQL
_names = count(1)
_keeps: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()  # by connection of a pooler: whether it has them prepared


def keeps_prepared(raw: Any) -> bool:
    """Return whether a statement that is prepared by protocol can be run in each later transaction.

    A pooler may give each transaction another connection to the server. PgBouncer from 1.21 on prepares the statements
    there, under names of its own, by which it is recognized (unless its `max_prepared_statements` is 0). Without a
    pooler, the driver has a `prepare_threshold`.
    """
    if raw.prepare_threshold is not None:
        return True
    if raw not in _keeps:
        can_close = sys.modules["psycopg"].capabilities.has_send_close_prepared()
        _keeps[raw] = can_close and _piped(raw, partial(_probe, raw.pgconn))[1].get_value(0, 0) == b"0"
    return _keeps[raw]


def _probe(pgconn: Any) -> None:
    """Prepare a statement that counts those of its own name, and run it."""
    pgconn.send_prepare(b"authz_probe", b"SELECT count(*) FROM pg_prepared_statements WHERE name = 'authz_probe'")
    pgconn.send_query_prepared(b"authz_probe", ())
    pgconn.send_close_prepared(b"authz_probe")


def forget_prepared(raw: Any) -> None:
    _prepared.pop(raw, None)
    _keeps.pop(raw, None)


def _send(raw: Any, statements: Sequence[SqlWithValues], is_kept: bool) -> None:
    """Send the statements, after what is prepared for the first time. Without BEGIN, all is one transaction, too."""
    written = [[None if value is None else str(value).encode() for value in values] for _, values in statements]
    names = _prepared.setdefault(raw, {})
    for sql, _ in statements:
        if is_kept and sql not in names:
            names[sql] = b"change_%d" % next(_names)
            raw.pgconn.send_prepare(names[sql], _numbered(sql))
    for (sql, _), values in zip(statements, written):
        if is_kept:
            raw.pgconn.send_query_prepared(names[sql], values)
        else:
            raw.pgconn.send_query_params(_numbered(sql), values)


@cache
def _numbered(sql: str) -> bytes:
    """Return the SQL with numbered parameters."""
    first, *more = sql.split("%s")
    return "".join([first, *(f"${number}{text}" for number, text in enumerate(more, 1))]).encode()


def _piped(raw: Any, send: Callable[[], None]) -> list[Any]:
    """Return the results of all that `send` sends, in one round trip."""
    raw.pgconn.enter_pipeline_mode()
    try:
        send()
        raw.pgconn.pipeline_sync()
        results: list[Any] = raw.wait(_received(raw.pgconn, sys.modules["psycopg"]))
        raw.pgconn.exit_pipeline_mode()
    except BaseException:
        raw.close()  # nobody knows what it would answer next
        raise
    return results


def _received(pgconn: Any, driver: Any) -> Generator[Any, Any, list[Any]]:
    """Return all results up to the end of the pipeline, when the transaction has been committed; for `wait`."""
    results: list[Any] = []
    yield from driver.generators.send(pgconn)
    while True:
        some = yield from driver.generators.fetch_many(pgconn)
        if some[-1].status == driver.pq.ExecStatus.PIPELINE_SYNC:
            return results
        results += some


def _limit_statements(cursor: CursorWrapper, seconds: float) -> None:
    if limit := _limit(seconds):
        cursor.execute(limit)


def _limit(seconds: float) -> str:
    """Return the statement that sets PostgreSQL's statement timeout for the rest of the transaction.

    It is empty if the transaction is that of an application without WRITE_TIMEOUT, whose own timeout applies.
    """
    return f"SET LOCAL statement_timeout = {_milliseconds(seconds)}" if seconds < math.inf or is_service() else ""


def _milliseconds(seconds: float) -> int:
    return 0 if seconds == math.inf else max(1, math.ceil(seconds * 1000))


def claim(environment_id: int, offsets: int) -> None:
    """Reserve this many more offsets for the same transaction, following those of its turn."""
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


# ---- server thread ------------------------------------------------------------------------------------------------
# Hooks of a server's threads: run work on another thread, and give up a concurrency slot.
#
# A server has few slots, because most requests take less time than a thread switch. A thread that takes longer than
# most gives up its slot, so that another request can begin, and continues without one.

T = TypeVar("T")


Elsewhere = Callable[[Callable[[Exception | None], object]], object]


class _ThreadLimits(threading.local):
    run: Elsewhere | None = None  # set in threads of changes, to run work in another one
    give_up: Callable[[], None] | None = None  # set in threads that hold a slot


thread = _ThreadLimits()


def give_up_slot() -> None:
    """Release this thread's slot, if it has one, so that another thread may begin."""
    if thread.give_up is not None:
        thread.give_up()


# ---- Changes of any process ---------------------------------------------------------------------------------------
# A server polls for changes that requests wait for (`LongPolls`), and is told at once of those of its own process.

log = logging.getLogger("authz.changes")

commit_listeners: list[Callable[[int], object]] = []  # each is called with the environment of a committed change
REST = 5  # times as long as a look that failed: the space is not looked at, so that a hung server holds up no others
_unreadable: dict[str, float] = {}  # until when; what waits for news of these spaces sees the error at its next request


def offsets_of(waiting: Mapping[int, str]) -> dict[int, int]:
    """Return the offsets of environments, given with their spaces; none of those in spaces that cannot be read."""
    found: dict[int, int] = {}
    for space in sorted(set(waiting.values())):
        began = time.monotonic()
        if began < _unreadable.get(space, 0.0):
            continue
        listed = ", ".join(str(int(number)) for number, of in waiting.items() if of == space)
        try:
            with spaces.entered(space), connection.cursor() as cursor:
                cursor.execute(f'SELECT id, "offset" FROM authz_environment WHERE id IN ({listed})')
                found |= dict(cursor.fetchall())
            _unreadable.pop(space, None)
        except Exception as error:
            if space not in _unreadable:
                log.warning("cannot check for changes: %s", one_line(error))
            _unreadable[space] = time.monotonic() + REST * (time.monotonic() - began)
            with suppress(Error):
                spaces.close_others()
                connection.close()
    return found
