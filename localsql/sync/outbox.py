"""Apply the changes that an application writes to an outbox table in its own transactions, exactly once each."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from secrets import randbelow

import orjson
from django.db import transaction
from django.db.models import F

from facts import store
from facts.accept import FactRejected
from facts.store import Applied, Change, Inserts, changes_from_json
from localsql.models import OutboxRow, OutboxState
from localsql.sync.config import ConfigRejected, DatabaseKind, Outbox, SourceFailed, shown
from localsql.sync.sources import SqlConnection, connected, path_of
from policy.core.journal import By, changing, current_offset, waiting_for_others
from policy.errors import AuthzError, MalformedRequest, TooLarge

# ---- identities ---------------------------------------------------------------------------------------------------
# The identity of an outbox, according to its server: different spellings of its address mean the same outbox.

_SYSTEM = "SELECT system_identifier::text FROM pg_control_system()"
_ADDRESS = "SELECT COALESCE(host(inet_server_addr()), 'local') || ':' || current_setting('port')"
_OF_POSTGRESQL = (
    "SELECT (SELECT oid FROM pg_database WHERE datname = current_database())::text, to_regclass(%s)::oid::text"
)


def _of_postgresql(outbox: Outbox, connection: SqlConnection) -> str:
    readable = connection.execute("SELECT has_function_privilege('pg_control_system()', 'execute')")[0][0]
    server = connection.execute(_SYSTEM if readable else _ADDRESS)[0][0]
    database, table = connection.execute(_OF_POSTGRESQL, (outbox.table,))[0]
    if table is None:
        raise SourceFailed(outbox.database.name, f"table `{outbox.table}` does not exist; create it")
    return f"postgresql {server} {database} {table}"


def _of_mysql(outbox: Outbox, connection: SqlConnection) -> str:
    """Return the identity. MariaDB servers have no UUID; host, port and directory identify them."""
    server = ""
    with suppress(SourceFailed):
        server = connection.execute("SELECT @@server_uuid")[0][0]
    server = server or connection.execute("SELECT CONCAT_WS(':', @@hostname, @@port, @@datadir)")[0][0]
    schema, _, table = outbox.table.rpartition(".")
    current, ignores_case = connection.execute("SELECT DATABASE(), @@lower_case_table_names")[0]
    name = f"{schema or current}.{table}"
    return f"mysql {server} {name.lower() if ignores_case else name}"


def _of_sqlite(outbox: Outbox, connection: SqlConnection) -> str:
    path = path_of(outbox.database).resolve()
    return f"sqlite {path} {outbox.table.lower().removeprefix('main.')}"


# ---- outbox tables in the application's database: reading and removing rows ---------------------------------------


@dataclass(frozen=True, slots=True)
class _OutboxKind:
    identity: Callable[[Outbox, SqlConnection], str]
    text: str  # the type for casting JSON to text
    digest: str = ""  # SQL expression for a row's digest, if the database supports it


_KINDS = {
    DatabaseKind.POSTGRES: _OutboxKind(
        _of_postgresql, "text", "encode(sha256(convert_to(COALESCE(CAST(changes AS text), ''), 'UTF8')), 'hex')"
    ),
    DatabaseKind.MYSQL: _OutboxKind(
        _of_mysql, "CHAR", "SHA2(CONVERT(COALESCE(CAST(changes AS CHAR), '') USING utf8mb4), 256)"
    ),
    DatabaseKind.SQLITE: _OutboxKind(_of_sqlite, "TEXT"),
}


@dataclass(frozen=True, slots=True)
class WrittenRow:
    number: int
    changes: str

    @property
    def digest(self) -> str:
        """The digest of the row's contents. With the number, it identifies the row, even if numbers are reused."""
        return sha256(self.changes.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class OutboxTable:
    """An outbox table in an open connection, in autocommit mode. The config reader has validated its name."""

    _name: str
    _connection: SqlConnection
    _kind: _OutboxKind
    identity: str  # the table's identity according to the server, however a file spells it

    def first(self, most: int) -> list[WrittenRow]:
        """Return up to `most` committed rows with the lowest numbers."""
        return self._rows(f"ORDER BY id LIMIT {int(most)}")

    def remove(self, rows: Mapping[int, str]) -> None:
        """Delete the rows that still have these digests."""
        if not rows:
            return
        if self._kind.digest:
            mark = self._connection.mark
            each = f"id = {mark} AND {self._kind.digest} = {mark}"
            condition = " OR ".join([f"({each})"] * len(rows))
            values = [value for row in rows.items() for value in row]
            self._connection.execute(f"DELETE FROM {self._name} WHERE {condition}", values)
            left = self._as_read(rows)
        else:
            left = self._removed_by_a_writer(rows)
        if left:
            raise SourceFailed(self._connection.database.name, f"the row {left[0]} of the outbox cannot be taken out")

    def _removed_by_a_writer(self, rows: Mapping[int, str]) -> list[int]:
        """Delete the rows, computing digests here, under SQLite's write lock: no row changes after it is read.

        Return the numbers of the rows that still exist.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            numbers = self._as_read(rows)
            if numbers:
                self._connection.execute(f"DELETE FROM {self._name} WHERE id IN ({self._marks(numbers)})", numbers)
            left = self._as_read(rows)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return left

    def _as_read(self, rows: Mapping[int, str]) -> list[int]:
        there = self._rows(f"WHERE id IN ({self._marks(rows)})", list(rows))
        return [row.number for row in there if rows[row.number] == row.digest]

    def _rows(self, which: str, values: Sequence[int | str] = ()) -> list[WrittenRow]:
        found = self._connection.execute(
            f"SELECT id, CAST(changes AS {self._kind.text}) FROM {self._name} {which}", values
        )
        return [WrittenRow(int(number), _shown(changes)) for number, changes in found]

    def _marks(self, numbers: Collection[int]) -> str:
        return ", ".join([self._connection.mark] * len(numbers))


def _shown(changes: str | bytes | None) -> str:
    return changes.decode() if isinstance(changes, bytes) else changes or ""


@contextmanager
def opened(outbox: Outbox) -> Iterator[OutboxTable]:
    kind = _KINDS[outbox.database.kind]
    with connected(outbox.database, writes=True) as connection:
        yield OutboxTable(outbox.table, connection, kind, kind.identity(outbox, connection))


# ---- applied rows that may still be in the outbox -----------------------------------------------------------------
# This is optimistic locking with a version number, called the turn. Each change of the stored rows names the turn that
# it is based on, and increments it. It fails with `DrainedElsewhere` if another process was faster; then the outbox has
# to be read again.


class DrainedElsewhere(Exception):
    """Another process that drains the same outbox was faster."""


@dataclass(frozen=True, slots=True)
class OutboxTurn:
    state: int
    number: int
    rows: dict[int, str]  # digests by number


def turn_of(environment_id: int, name: str) -> OutboxTurn:
    """Return the turn and its rows, with a single statement (snapshot)."""
    OutboxState.objects.get_or_create(environment_id=environment_id, name=name)
    states = OutboxState.objects.filter(environment_id=environment_id, name=name)
    found = list(states.values_list("pk", "turn", "rows__number", "rows__digest"))
    if not found:
        raise DrainedElsewhere
    state, turn, _, _ = found[0]
    return OutboxTurn(state, turn, {number: digest for _, _, number, digest in found if number is not None})


def remember(turn: OutboxTurn, rows: Sequence[WrittenRow]) -> None:
    """Record these rows as applied. Call this first in the transaction that applies them."""
    assert transaction.get_connection().in_atomic_block, "a row is remembered with its change, or not at all"
    _take(turn)
    made = [OutboxRow(state_id=turn.state, number=row.number, digest=row.digest) for row in rows]
    OutboxRow.objects.bulk_create(made)


def forget(turn: OutboxTurn) -> None:
    """Delete the record of the turn's rows, once they are deleted from the outbox."""
    with transaction.atomic():
        _take(turn)
        OutboxRow.objects.filter(state_id=turn.state, number__in=list(turn.rows)).delete()


def _take(turn: OutboxTurn) -> None:
    if not OutboxState.objects.filter(pk=turn.state, turn=turn.number).update(turn=turn.number + 1):
        raise DrainedElsewhere


# ---- batches with a key, which their senders may send again ---------------------------------------------------------
# Their keys are remembered as rows of one outbox, whose numbers are the beginnings of the keys' digests.

KEYS = "Idempotency-Key"


def apply_once(environment_id: int, key: str, body: bytes, changes: Sequence[Change], by: By) -> Applied:
    """Apply the changes, unless a batch with this key was applied; refuse the key of a batch with another body."""
    named = key.encode("utf-8", "surrogateescape")
    number, digest = int(sha256(named).hexdigest()[:15], 16), sha256(named + body).hexdigest()
    with changing():
        with waiting_for_others():  # the same key twice at once: one waits
            state, _ = OutboxState.objects.get_or_create(environment_id=environment_id, name=KEYS)
            OutboxState.objects.filter(pk=state.pk).update(turn=F("turn") + 1)
        row, is_new = OutboxRow.objects.get_or_create(state=state, number=number, defaults={"digest": digest})
        if row.digest != digest:
            raise MalformedRequest(KEYS, "was sent with another batch, which was applied; send another key")
        if not is_new:
            return Applied(current_offset(environment_id))
        if randbelow(_FORGOTTEN_EVERY) == 0:
            _forget_keys(state)
        return store.apply(environment_id, late(changes), by)


_FORGOTTEN_EVERY = 100  # batches, on average: finding what to forget takes longer than storing a key


def _forget_keys(state: OutboxState) -> None:
    """Forget all but the latest keys. The ids of rows of all environments and outboxes come from one sequence."""
    ids = OutboxRow.objects.filter(state=state).order_by("-pk").values_list("pk", flat=True)
    for newest in ids[store.KEYS_KEPT : store.KEYS_KEPT + 1]:
        OutboxRow.objects.filter(state=state, pk__lte=newest).delete()


# ---- rows of an outbox -> changes of facts, in id order, exactly once each ----------------------------------------

AUTHOR = By("outbox")
AT_ONCE = 100  # rows per revision
OF_A_ROW = (MalformedRequest, FactRejected, TooLarge)  # errors in a row's contents; other errors are transient or bugs
_SHOWN = 300  # characters of a skipped row


class RowRejected(AuthzError):
    """A row is not a valid change; the rows after it wait until it is corrected."""

    def __init__(self, row: WrittenRow, reason: str):
        self.row, self.reason = row, reason
        super().__init__(f"{sentence(row, reason)}; correct it in the table, or pass --skip-bad to delete it")


def sentence(row: WrittenRow, reason: str) -> str:
    more = "…" if len(row.changes) > _SHOWN else ""
    return f"row {row.number} of the outbox, {shown(row.changes[:_SHOWN])}{more}: {shown(reason)}"


@dataclass
class Drained:
    rows: int = 0
    skipped: int = 0
    revisions: int = 0


def drain(
    environment_id: int, outbox: Outbox | None, skips_bad: bool, report_bad: Callable[[str], None], done: Drained
) -> None:
    """Drain the outbox until it is empty. Raise invalid rows; with `skips_bad`, report and delete them."""
    if outbox is None:
        raise ConfigRejected("outbox", "is required; add it with the keys `db` and `table`")
    with opened(outbox) as table:
        drainer = _Drainer(environment_id, table, skips_bad, report_bad, done)
        has_more = True
        while has_more:
            with suppress(DrainedElsewhere):  # what the other process applied is recorded or deleted by now
                has_more = drainer.has_more()


@dataclass
class _Drainer:
    environment_id: int
    table: OutboxTable
    skips_bad: bool
    report_bad: Callable[[str], None]
    done: Drained
    alone: int = field(default=0)  # number of rows to apply one by one, to find an invalid one among them

    def has_more(self) -> bool:
        """Drain one batch, and return whether there may be more."""
        turn = turn_of(self.environment_id, self.table.identity)
        if turn.rows:
            self._finish(turn)
            return True
        rows = self.table.first(1 if self.alone else AT_ONCE)
        if not rows:
            return False
        try:
            self._make(turn, rows)
        except OF_A_ROW as error:
            self._find_wrong(rows, error.message)
            return True
        self.alone = max(0, self.alone - 1)
        self._finish(OutboxTurn(turn.state, turn.number + 1, {row.number: row.digest for row in rows}))
        return True

    def _make(self, turn: OutboxTurn, rows: Sequence[WrittenRow]) -> None:
        changes = [change for row in rows for change in changes_of(row)]
        with changing():
            remember(turn, rows)  # locked before any environment, and by drains only: no deadlock
            if changes:
                store.apply(self.environment_id, changes, AUTHOR)
        self.done.rows += len(rows)
        self.done.revisions += bool(changes)

    def _finish(self, turn: OutboxTurn) -> None:
        """Delete the applied rows from the outbox, and then their record.

        A row that reuses an id has a different digest: it is another row, and stays.
        """
        self.table.remove(turn.rows)
        forget(turn)

    def _find_wrong(self, rows: Sequence[WrittenRow], reason: str) -> None:
        if len(rows) > 1:
            self.alone = len(rows)
            return
        if not self.skips_bad:
            raise RowRejected(rows[0], reason)
        self.report_bad(f"skipped: {sentence(rows[0], reason)}")
        self.table.remove({rows[0].number: rows[0].digest})  # if it was corrected meanwhile, it is read again
        self.alone = 0
        self.done.skipped += 1


def changes_of(row: WrittenRow) -> list[Change]:
    """Return the changes in a row, which has the form of the body of POST /batch.

    Facts may have expired while the row waited.
    """
    try:
        said = orjson.loads(row.changes)
    except orjson.JSONDecodeError as error:
        raise MalformedRequest("changes", f"is invalid JSON: {error}") from None
    return late(changes_from_json(said, "changes"))


def late(changes: Sequence[Change]) -> list[Change]:
    return [replace(each, is_late=True) if isinstance(each, Inserts) else each for each in changes]
