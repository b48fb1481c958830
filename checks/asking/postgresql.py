"""Run statements on PostgreSQL by the driver's lowest layer: its cursors take longer than most questions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from math import ceil
from select import POLLIN, poll
from time import monotonic
from weakref import WeakKeyDictionary

import psycopg
from psycopg import capabilities, errors
from psycopg.adapt import Transformer
from psycopg.generators import fetch, send
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from checks.asking.limits import LONG, Deadline, known
from checks.asking.run import turns
from checks.errors import QueryTooSlow, StatementTooLarge
from policy.core import journal, memory
from policy.errors import Cancelled, TooLarge, Unavailable

_FRESH = 0.9  # share of a question's time; while more is left, the connection's `statement_timeout` is good enough
MOST_PREPARED = 1000  # statements per connection: a policy has many shapes of questions
_BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN_PREPARED = _BEGIN + b"; EXECUTE nothing"
_FORGOTTEN = b"26000"  # PostgreSQL's error code for a prepared statement that does not exist

StatementNames = OrderedDict[str, bytes | None]  # by SQL, least recently used first; None: it ran once

_names: WeakKeyDictionary[psycopg.Connection, StatementNames] = WeakKeyDictionary()
_numbers = count(1)
_SOON = 100  # milliseconds
_running: dict[psycopg.Connection, tuple[float, str, Sequence[object]]] = {}  # with start times
_LONG_TIMES = 2  # slow runs in a row until a statement waits for a turn; one may only mean that the machine stalled


def execute(raw: psycopg.Connection, sql: str, values: Sequence[object], time: Deadline) -> list[tuple]:
    """Run a statement, limited by the connection's `statement_timeout` or the rest of the question's time."""
    try:
        if not can_run(raw):
            time.left()  # raises if none is left
            with psycopg.RawCursor(raw) as cursor:
                return cursor.execute(sql.encode(), values).fetchall()
        if turns.count:
            return _by_turns(raw, sql, values, time)
        return _in_time(raw, sql, values, time)
    except errors.QueryCanceled:
        raise QueryTooSlow(time.seconds) if time.is_over() else Cancelled from None
    except (errors.ProgramLimitExceeded, errors.StatementTooComplex, errors.TooManyColumns):
        raise StatementTooLarge from None


def glance(raw: psycopg.Connection, sql: str, value: str) -> tuple | None:
    """Return the one row of numbers of a prepared statement; None if it is not prepared, or on any error.

    The caller then uses `execute`, which prepares the statement or raises the error. Always None within a transaction,
    which the first error would abort.
    """
    names = _names.get(raw)
    name = names.get(sql) if names else None
    if not name or not can_run(raw) or in_transaction(raw):
        return None
    try:
        raw.pgconn.send_query_prepared(name, [value.encode()])
        result = _awaited(raw)
    except psycopg.Error:
        return None
    if result.status != ExecStatus.TUPLES_OK or result.ntuples != 1:
        return None
    found = [result.get_value(0, each) for each in range(result.nfields)]
    return tuple([None if each is None else int(each) for each in found])


def _by_turns(raw: psycopg.Connection, sql: str, values: Sequence[object], time: Deadline) -> list[tuple]:
    """Run a statement. Wait for a turn if it was slow twice in a row, or is running slowly on another connection."""
    times = known.times(sql, values)
    if times < _LONG_TIMES and not _takes_long(sql, values):
        return _noted(raw, sql, values, time, times)
    journal.give_up_slot()
    with turns.one(time) as turn:
        try:
            return _noted(raw, sql, values, time, times)
        except errors.QueryCanceled:
            raise turn.refusal if time.is_over() else Cancelled from None


def _takes_long(sql: str, values: Sequence[object]) -> bool:
    long_ago = monotonic() - LONG
    mine = sql, values
    return any(began < long_ago for began, *asked in tuple(_running.values()) if tuple(asked) == mine)


def _noted(raw: psycopg.Connection, sql: str, values: Sequence[object], time: Deadline, times: int) -> list[tuple]:
    """Run a statement, and record whether it was slow. `times` is how often in a row it was before."""
    began = monotonic()
    _running[raw] = began, sql, values
    takes_long = False
    try:
        found = _in_time(raw, sql, values, time)
    finally:
        del _running[raw]
        if takes_long := monotonic() - began > LONG:
            known.note(sql, values, times + 1)
    if times and not takes_long:
        known.forget(sql, values)
    return found


def _in_time(raw: psycopg.Connection, sql: str, values: Sequence[object], time: Deadline) -> list[tuple]:
    left = time.left()
    if left >= time.seconds * _FRESH:
        return rows(raw, sql, values)
    with nullcontext() if in_transaction(raw) else snapshot(raw):
        limit(raw, left)
        return rows(raw, sql, values)


@contextmanager
def snapshot(raw: psycopg.Connection) -> Iterator[None]:
    _begin_snapshot(raw)
    try:
        yield
    finally:
        with suppress(psycopg.Error):  # a lost connection has no transaction to end
            _executed(raw, b"COMMIT")


@contextmanager
def limited(raw: psycopg.Connection, seconds: float) -> Iterator[None]:
    """Limit each statement inside to `seconds`. The snapshot stays usable after one that is cancelled."""
    command = b"SAVEPOINT limited; SET LOCAL statement_timeout = %d" % max(1, int(seconds * 1000))
    _good(raw, _executed(raw, command), ExecStatus.COMMAND_OK)
    try:
        yield
    finally:
        with suppress(psycopg.Error):
            _executed(raw, b"ROLLBACK TO SAVEPOINT limited; RELEASE SAVEPOINT limited")


def is_pooled(raw: psycopg.Connection) -> bool:
    """Return whether each transaction may have another server connection."""
    return raw.prepare_threshold is None


def in_transaction(raw: psycopg.Connection) -> bool:
    return raw.pgconn.transaction_status != TransactionStatus.IDLE


def can_run(raw: psycopg.Connection) -> bool:
    """Return whether the connection is open and not in a transaction of Django's, in which `execute` uses a cursor."""
    return raw.pgconn.status == ConnStatus.OK and raw.autocommit


def rows(raw: psycopg.Connection, sql: str, values: Sequence[object]) -> list[tuple]:
    written = [_written(value) for value in values]
    found, last = _fetched(raw, sql, written)
    if _is_forgotten(last):
        _forget(raw)
        if raw.pgconn.transaction_status == TransactionStatus.IDLE:
            found, last = _fetched(raw, sql, written)
    _good(raw, last, ExecStatus.TUPLES_OK)
    return found


def _begin_snapshot(raw: psycopg.Connection) -> None:
    """Begin a transaction whose first statement is a prepared one that does nothing.

    The driver drops all prepared statements, including ours, when a transaction is rolled back. A missing one would
    abort the snapshot, so this first statement detects that, and the transaction is begun again.
    """
    if is_pooled(raw):  # the driver prepares and drops nothing then
        _good(raw, _executed(raw, _BEGIN), ExecStatus.COMMAND_OK)
        return
    _names_of(raw)
    begun = _executed(raw, _BEGIN_PREPARED)
    if _is_forgotten(begun):
        _executed(raw, b"ROLLBACK")
        _forget(raw)
        begun = _executed(raw, _BEGIN_PREPARED)
    if begun.status != ExecStatus.TUPLES_OK and raw.pgconn.status == ConnStatus.OK:
        _executed(raw, b"ROLLBACK")
    _good(raw, begun, ExecStatus.TUPLES_OK)


def limit(raw: psycopg.Connection, seconds: float) -> None:
    """Set the timeout of each statement until the snapshot ends."""
    command = b"SET LOCAL statement_timeout = %d" % max(1, ceil(seconds * 1000))
    _good(raw, _executed(raw, command), ExecStatus.COMMAND_OK)


def _executed(raw: psycopg.Connection, command: bytes) -> PGresult:
    if raw.pgconn.status != ConnStatus.OK:
        raise psycopg.OperationalError("the connection is lost")
    raw.pgconn.send_query(command)
    return _awaited(raw)


def _awaited(raw: psycopg.Connection) -> PGresult:
    """Return the result of what was sent; the last one if there are several."""
    _flush(raw)
    last = None
    while (result := _next(raw)) is not None:
        last = result
    assert last is not None, "each statement has a result"
    return last


def _flush(raw: psycopg.Connection) -> None:
    if raw.pgconn.flush():  # the server did not accept all of it at once
        raw.wait(send(raw.pgconn))


def _next(raw: psycopg.Connection) -> PGresult | None:
    """Wait for the next result of what was sent; None after the last one.

    Most results come soon, and the driver's way of waiting would take longer than the rest. After `_SOON`, the
    connection waits, with its own limits.
    """
    connection = raw.pgconn
    if connection.is_busy():
        readable = poll()
        readable.register(connection.socket, POLLIN)
        if readable.poll(_SOON):
            connection.consume_input()
        if connection.is_busy():
            return raw.wait(fetch(connection))
    return connection.get_result()


def _fetched(raw: psycopg.Connection, sql: str, values: list[bytes | None]) -> tuple[list[tuple], PGresult]:
    """Run a statement; return its rows, and the last result, which tells whether these are all."""
    if not journal.keeps_prepared(raw):
        raw.pgconn.send_query_params(sql.encode(), values)
        return _received(raw)
    names = _names_of(raw)
    name = names.get(sql)
    if sql not in names:  # the first time; prepared on the second
        _remember(raw, names, sql)
        raw.pgconn.send_query_params(sql.encode(), values)
        return _received(raw)
    if not name:
        name = b"question_%d" % next(_numbers)
        raw.pgconn.send_prepare(name, sql.encode())
        prepared = _awaited(raw)
        if prepared.status != ExecStatus.COMMAND_OK:
            return [], prepared
        names[sql] = name
    names.move_to_end(sql)
    raw.pgconn.send_query_prepared(name, values)
    return _received(raw)


def _received(raw: psycopg.Connection) -> tuple[list[tuple], PGresult]:
    """Return the rows and the last result. Rows come in chunks, each counted before the driver takes the next one."""
    if capabilities.has_stream_chunked():
        raw.pgconn.set_chunked_rows_mode(memory.AT_ONCE)
    read, found, last = Transformer(raw), list[tuple](), None
    _flush(raw)
    try:
        while (result := _next(raw)) is not None:
            last = result
            if result.ntuples:
                read.set_pgresult(result)
                some = read.load_rows(0, result.ntuples, tuple)
                memory.count(some)
                found += some
    except (TooLarge, Unavailable):
        with suppress(psycopg.Error):
            raw.pgconn.get_cancel().cancel()
            _awaited(raw)
        raise
    assert last is not None, "each statement has a result"
    return found, last


def _good(raw: psycopg.Connection, result: PGresult, wanted: ExecStatus) -> PGresult:
    if result.status == wanted:
        return result
    if raw.pgconn.status != ConnStatus.OK:  # the server could not report the reason
        raise psycopg.OperationalError(result.get_error_message())
    raise errors.error_from_result(result)


def _is_forgotten(result: PGresult) -> bool:
    return result.status == ExecStatus.FATAL_ERROR and result.error_field(DiagnosticField.SQLSTATE) == _FORGOTTEN


def _names_of(raw: psycopg.Connection) -> StatementNames:
    names = _names.get(raw)
    if names is None:
        if not is_pooled(raw):
            _executed(raw, b"PREPARE nothing AS SELECT")  # prepared first: while it exists, all others do
        names = _names[raw] = OrderedDict()
    return names


def _forget(raw: psycopg.Connection) -> None:
    del _names[raw]
    journal.forget_prepared(raw)
    _names_of(raw)


def _remember(raw: psycopg.Connection, names: StatementNames, sql: str) -> None:
    names[sql] = None
    if len(names) > MOST_PREPARED:
        _, oldest = names.popitem(last=False)
        if oldest is not None and is_pooled(raw):  # a pooler does not read statements
            raw.pgconn.send_close_prepared(oldest)
            _awaited(raw)
        elif oldest is not None:
            _executed(raw, b"DEALLOCATE " + oldest)


def _written(value: object) -> bytes | None:
    """Return a parameter as text. Reject NUL, which the C library would take for the end of the text."""
    match value:
        case str():
            if "\0" in value:
                raise psycopg.DataError("PostgreSQL text cannot contain NUL")
            return value.encode()
        case int():
            return b"%d" % value
        case None:
            return None
    raise TypeError(f"{type(value).__name__} is no parameter of a statement")
