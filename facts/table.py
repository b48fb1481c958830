"""The tables of stored and past facts: the statements that read and change them. The engine compiles its own SELECTs.

    select(KEY, "sig = %s", "a3 = %s", by="a3", limit=10)
    SELECT sig, a0, a1, a2, a3, a4 FROM authz_fact INDEXED BY fact_a3 WHERE sig = %s AND a3 = %s AND a3 <> '' LIMIT 10

The names of columns and numbers are part of the text; ids are parameters.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any

import orjson
from django.db import connection, transaction

from facts.models import COLUMNS, PAST, STORED, GoneRow, NewRow, Row, condition, hint
from policy.core import memory
from policy.core.clock import now_in
from policy.core.config import is_service

# ---- select -------------------------------------------------------------------------------------------------------

IDS = ", ".join(COLUMNS)
KEY = f"sig, {IDS}"
NAMES = f"{KEY}, since, expires_at"
_PAST_NAMES = f"{KEY}, since, until, expires_at"


def select(
    columns: str,
    *tests: str,
    table: str = STORED,
    by: str | None = None,
    beside: str = "",
    alias: str = "",
    group: str = "",
    order: str = "",
    limit: int | str | None = None,
) -> str:
    """Return the SELECT of the facts that pass all tests; empty tests do not count.

    `by` is the column whose index finds them: SQLite, which has no statistics, is told so (see `facts.models`). What
    is read `beside` the facts is joined, and comes first.
    """
    named = f"{table} {alias}" if alias else table
    if by is not None:
        named += hint(table, by) if connection.vendor == "sqlite" else ""
        tests = (*tests, condition(table, by))
    text = f"SELECT {columns} FROM {f'{beside} CROSS JOIN ' if beside else ''}{named}"
    if where := " AND ".join([test for test in tests if test]):
        text += f" WHERE {where}"
    text += f" GROUP BY {group}" if group else ""
    text += f" ORDER BY {order}" if order else ""
    return text if limit is None else f"{text} LIMIT {limit}"


def counted(selected: str) -> str:
    """Return the SELECT of how many rows a SELECT has."""
    return f"SELECT COUNT(*) FROM ({selected}) AS counted"


def fetch(statement: str, values: Sequence[Any] = ()) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()


def execute(statement: str, values: Sequence[Any] = ()) -> int:
    """Return how many rows a statement changed."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.rowcount


def count_up_to(most: int, numbers: Iterable[int]) -> int:
    """Return how many facts there are of the signatures with these numbers, counting up to `most`."""
    total = 0
    for number in numbers:
        total += fetch(counted(select("1", "sig = %s", limit="%s")), (number, most - total))[0][0]
        if total >= most:
            break
    return total


# Conditions. A plus keeps both databases from using an index on the column.


def of_signatures(numbers: Iterable[int]) -> str:
    return f"sig IN ({', '.join(str(int(number)) for number in numbers) or 'NULL'})"


def equals(column: str) -> str:
    """Return the condition that an id is the one given, so that the column's index is used even if it is partial."""
    needed = condition(STORED, column)
    return f"{column} = %s AND {needed}" if needed else f"{column} = %s"


def ids_are(sign: str) -> str:
    """Return the condition on the position of all ids, in order: `>` for those that follow the ones given."""
    return f"({IDS}) {sign} (%s, %s, %s, %s, %s)"


def lasting() -> str:
    """Return the condition that a stored fact has not expired; a statement reads the clock once."""
    return f"(expires_at IS NULL OR expires_at > (SELECT {now_in(connection.vendor)}))"


def ended() -> str:
    """Return the condition that a stored fact has expired; the index on `expires_at` serves it."""
    return f"expires_at <= (SELECT {now_in(connection.vendor)})"


def held(table: str, revision: int, at: int, until: str = "until") -> str:
    """Return the condition that a stored or past fact held as of a revision, whose time is given in microseconds."""
    begun = f"since + 0 <= {int(revision)} AND (expires_at IS NULL OR expires_at > {int(at)})"
    return begun if table == STORED else f"{begun} AND {until} > {int(revision)}"


_SAME_KEY = " AND ".join(f"{{0}}.{name} = {{1}}.{name}" for name in ("sig", *COLUMNS))


def began_again() -> str:
    """Return the condition that a past fact began again in the revision that ended it."""
    same, again = _SAME_KEY.format("other", PAST), f"other.since = {PAST}.until"
    return " OR ".join(f"EXISTS ({select('1', same, again, table=each, alias='other')})" for each in (STORED, PAST))


def distinct_ids(column: str, *tests: str, start: str = "") -> str:
    """Return the SELECT of the distinct ids in a column, in order; from `start`, a condition, if one is given.

    It is a loose index scan, from each id straight to the next one: its time depends on the number of ids, not of
    facts. The tests, with their values, stand in it twice.
    """
    smallest = f"MIN({column})"
    first, following = select(smallest, *tests, start), select(smallest, *tests, f"{column} > seen.id")
    return (
        f"WITH RECURSIVE seen(id) AS ({first} UNION ALL SELECT ({following}) FROM seen WHERE seen.id IS NOT NULL)"
        " SELECT id FROM seen WHERE id IS NOT NULL LIMIT %s"
    )


# ---- net changes --------------------------------------------------------------------------------------------------
# The net changes of a revision, computed after its changes have been made one after the other.
#
# A batch often deletes what it inserts again: `delete has_role(User:ann, _, Org:acme)`, followed by her roles. A fact
# that is the same before and after a revision has not changed, and is not recorded as changed.


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many facts a revision inserted that did not exist before, and deleted that did."""

    inserted: int = 0
    deleted: int = 0


def settle(numbers: Iterable[int], revision: int) -> None:
    """Cancel out facts that the revision both ended and began, of the signatures with these numbers."""
    here = f"{PAST}.{of_signatures(numbers)} AND {PAST}.until = %s"
    alike = "IS" if connection.vendor == "sqlite" else "IS NOT DISTINCT FROM"
    same = f"{_SAME_KEY.format(STORED, PAST)} AND {STORED}.expires_at {alike} {PAST}.expires_at"
    execute(delete(here, "since = until", table=PAST), (revision,))
    begun = f"{STORED}.since = {PAST}.until"
    execute(f"UPDATE {STORED} SET since = {PAST}.since FROM {PAST} WHERE {here} AND {same} AND {begun}", (revision,))
    # A stored fact has the `since` of its past fact only if the preceding statement restored it.
    restored = f"EXISTS ({select('1', same, f'{STORED}.since = {PAST}.since')})"
    execute(delete(here, restored, table=PAST), (revision,))


def changed(numbers: Iterable[int], first: int, last: int) -> dict[int, ChangeCounts]:
    """Return how many facts each of these revisions changed, of the signatures with these numbers."""
    here = of_signatures(numbers)
    inserted: dict[int, int] = {}
    deleted: dict[int, int] = {}
    for table, column, counts in ((STORED, "since", inserted), (PAST, "since", inserted), (PAST, "until", deleted)):
        between = f"{column} BETWEEN %s AND %s"
        statement = select(f"{column}, COUNT(*)", here, between, table=table, group=column)
        for number, count in fetch(statement, (first, last)):
            counts[number] = counts.get(number, 0) + count
    return {each: ChangeCounts(inserted.get(each, 0), deleted.get(each, 0)) for each in range(first, last + 1)}


# ---- other changes ------------------------------------------------------------------------------------------------


def delete(*tests: str, table: str = STORED) -> str:
    """Return the statement that deletes the facts that pass all tests, without a trace."""
    return f"DELETE FROM {table} WHERE {' AND '.join([test for test in tests if test])}"


def insert_from(table: str, conflicts: str = " ON CONFLICT DO NOTHING") -> int:
    """Store the facts of a temporary table; return how many are new."""
    return execute(f"INSERT INTO {STORED} ({NAMES}) SELECT {NAMES} FROM {table}{conflicts}")


def copy_signature(origin: int, target: int, revision: int) -> int:
    """Store the facts of one signature under another one, with their expiries; return how many."""
    facts = select(f"%s, {IDS}, %s, expires_at", "sig = %s", lasting())
    return execute(f"INSERT INTO {STORED} ({NAMES}) {facts} ON CONFLICT DO NOTHING", (target, revision, origin))


# ---- Bulk reads and writes, as is fastest on each database --------------------------------------------------------

AT_ONCE = 2_000  # rows per fetch
OF_FACT = 1_500  # bytes that a fact takes while JSON is made of it, besides its strings

_EACH = " AND ".join(f"{name} = %s" for name in ("sig", *COLUMNS))
_EQUAL = _SAME_KEY.format(STORED, "gone")
_INSERT = f"INSERT INTO {STORED} ({NAMES}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"


class SqliteTable:
    def insert(self, rows: Sequence[NewRow]) -> int:
        with connection.cursor() as cursor:
            cursor.executemany(_INSERT, _in_order(rows))
            return cursor.rowcount

    def end(self, rows: Sequence[GoneRow]) -> int:
        ordered = _in_order(rows)
        with connection.cursor() as cursor:
            cursor.executemany(_moved(_EACH), [(row[-1], *row[:-1]) for row in ordered])
            cursor.executemany(delete(_EACH), [row[:-1] for row in ordered])
            return cursor.rowcount

    def end_others(self, rows: Sequence[NewRow]) -> int:
        """End the stored facts whose rows are given with another expiry."""
        condition = f"{_EACH} AND expires_at IS NOT %s"
        ordered = _in_order(rows)
        with connection.cursor() as cursor:
            cursor.executemany(_moved(condition), [(row[-2], *row[:-2], row[-1]) for row in ordered])
            cursor.executemany(delete(condition), [(*row[:-2], row[-1]) for row in ordered])
            return cursor.rowcount

    def end_all(self, condition: str, values: Sequence[int | str], until: int) -> int:
        execute(_moved(condition), (until, *values))
        return execute(delete(condition), values)

    def stream(self, statement: str, values: Sequence[int | str] = ()) -> Iterator[Row]:
        """Yield the rows of one statement, and so of one snapshot, without a transaction that would block writers."""
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            while rows := cursor.fetchmany(AT_ONCE):
                yield from rows

    def fetched(self, statement: str, values: Sequence[int | str] = ()) -> list[Row]:
        """Return all rows of a statement, counting them against the memory budget as they arrive."""
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return memory.fetched(cursor, OF_FACT)

    def lift_time_limit(self) -> None:
        """Disable the statement timeout for the rest of the transaction: it is for queries, not for changes."""

    @contextmanager
    def expect_many(self) -> Iterator[None]:
        """Enlarge the page cache, so that a page that changes often is not written to disk each time."""
        connection.ensure_connection()
        raw = connection.connection
        (usual,) = raw.execute("PRAGMA cache_size").fetchone()
        raw.execute("PRAGMA cache_size = -131072")
        try:
            yield
        finally:  # pages beyond it are freed after the commit
            raw.execute(f"PRAGMA cache_size = {usual:d}")


# For PostgreSQL: rows as one JSON value, which takes the driver and the server less time than an array for each column.
_KEY_TYPES = ("integer", *["text"] * len(COLUMNS))
_TYPES = (*_KEY_TYPES, "bigint", "bigint")


def rows_of_json(*types: str) -> str:
    """Return the table of the rows in a parameter, an array of arrays, with these types of columns (see `as_json`)."""
    columns = ", ".join(f"(row->>{index})::{kind}" for index, kind in enumerate(types))
    return f"(SELECT {columns} FROM jsonb_array_elements(%s::jsonb) AS row)"


def as_json(rows: Sequence[Sequence[object]]) -> str:
    return orjson.dumps(rows).decode()


_ROWS = rows_of_json(*_TYPES)
# The environments let Citus run the statement where the tables are. Else it would count rows that are stored already.
_INSERT_ROWS = (
    f"INSERT INTO {STORED} ({NAMES}) SELECT * FROM {_ROWS} AS new WHERE EXISTS (SELECT 1 FROM authz_environment)"
)
_END_ROWS = f"DELETE FROM {STORED} USING {_ROWS} AS gone ({KEY}, until, expires_at) WHERE {_EQUAL}"


def delete_keys(rows: Sequence[Sequence[object]]) -> None:
    """Delete the stored facts of these rows, which are no more than a key, without keeping them as past facts."""
    execute(f"DELETE FROM {STORED} USING {rows_of_json(*_KEY_TYPES)} AS gone ({KEY}) WHERE {_EQUAL}", [as_json(rows)])


def inserts_in_with(turn: str) -> str:
    """Return the table `changed` of a WITH, which inserts rows: the `number` of each one's revision.

    The numbers of the rows are counted from the one `before` those of a table in the same WITH.
    """
    new = f"SELECT {KEY}, before + since, expires_at FROM {turn}, {_ROWS} AS new ({NAMES})"
    return f"changed AS (INSERT INTO {STORED} ({NAMES}) {new} ON CONFLICT DO NOTHING RETURNING since AS number)"


def ends_in_with(turn: str) -> str:
    """Return the same for facts that are ended; the last column of their rows is not used."""
    gone = f"DELETE FROM {STORED} USING {turn}, {_ROWS} AS gone ({KEY}, until, expires_at) WHERE {_EQUAL}"
    ends = _ended(gone, f"{turn}.before + gone.until")
    return f"{ends[0]}, changed AS ({ends[1]} RETURNING until AS number)"


class PostgresqlTable:
    def insert(self, rows: Sequence[NewRow]) -> int:
        return execute(f"{_INSERT_ROWS} ON CONFLICT DO NOTHING", (as_json(rows),))

    def end(self, rows: Sequence[GoneRow]) -> int:
        return execute(_moved_with(_END_ROWS, "gone.until"), (as_json([(*row, None) for row in rows]),))

    def end_others(self, rows: Sequence[NewRow]) -> int:
        """End the stored facts whose rows are given with another expiry."""
        others = f"{_END_ROWS} AND {STORED}.expires_at IS DISTINCT FROM gone.expires_at"
        return execute(_moved_with(others, "gone.until"), (as_json(rows),))

    def end_all(self, condition: str, values: Sequence[int | str], until: int) -> int:
        return execute(_moved_with(delete(condition), "%s::bigint"), (*values, until))

    def stream(self, statement: str, values: Sequence[int | str] = ()) -> Iterator[Row]:
        """Yield the rows of one snapshot with a server-side cursor, without holding the result in memory."""
        with transaction.atomic():
            self.lift_time_limit()
            with connection.chunked_cursor() as cursor:
                cursor.execute(statement, values)
                while rows := cursor.fetchmany(AT_ONCE):
                    yield from rows

    def fetched(self, statement: str, values: Sequence[int | str] = ()) -> list[Row]:
        """Return all rows of a statement, counting them against the memory budget as they arrive.

        `execute` would buffer the whole result in the driver before any of it could be counted.
        """
        driver: Any = connection.Database  # type: ignore[attr-defined]  # psycopg; servers on SQLite do without it
        size = memory.AT_ONCE if driver.capabilities.has_stream_chunked() else 1
        with (
            connection.wrap_database_errors, connection.cursor() as cursor,
            closing(cursor.cursor.stream(statement, values, size=size)) as rows,
        ):  # fmt: skip
            return memory.fetched(_Streamed(rows), OF_FACT)

    def lift_time_limit(self) -> None:
        """Disable the statement timeout for the rest of the transaction: it is for queries, not for changes."""
        if is_service():  # else the transaction is that of an application, with a timeout of its own
            execute("SET LOCAL statement_timeout = 0")

    @contextmanager
    def expect_many(self) -> Iterator[None]:
        self.lift_time_limit()
        yield


class _Streamed:
    def __init__(self, rows: Iterator[Row]):
        self._rows = rows

    def fetchmany(self, size: int) -> list[Row]:
        return list(islice(self._rows, size))


def _in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sort rows by signature and first id, so that neighboring rows go to the same page.

    Comparing whole rows would take a tenth of the time of a load, and gain little.
    """
    ordered = sorted(rows, key=itemgetter(1))
    ordered.sort(key=itemgetter(0))
    return ordered


def _moved(condition: str) -> str:
    """Return the INSERT that copies facts to the past facts; its first parameter is the revision that ends them."""
    return f"INSERT INTO {PAST} ({_PAST_NAMES}) {select(f'{KEY}, since, %s, expires_at', condition)}"


def _ended(deletes: str, until: str) -> tuple[str, str]:
    """Return the table `ended` of a WITH, which deletes facts, and the INSERT of these into the past facts."""
    keys = ", ".join(f"{STORED}.{name}" for name in ("sig", *COLUMNS))
    returned = f"{keys}, {STORED}.since, {until} AS until, {STORED}.expires_at"
    return f"ended AS ({deletes} RETURNING {returned})", f"INSERT INTO {PAST} ({_PAST_NAMES}) SELECT * FROM ended"


def _moved_with(deletes: str, until: str) -> str:
    return "WITH {} {}".format(*_ended(deletes, until))


_TABLES: dict[str, SqliteTable | PostgresqlTable] = {"sqlite": SqliteTable(), "postgresql": PostgresqlTable()}


def fact_table() -> SqliteTable | PostgresqlTable:
    """Return the table for the connected database."""
    return _TABLES[connection.vendor]


# ---- statistics ---------------------------------------------------------------------------------------------------
# The database's statistics of the fact table: PostgreSQL's are kept up to date, SQLite's are dropped.
#
# PostgreSQL chooses an index by its statistics, which autovacuum updates only about once a minute. A table that was
# just filled has none: a list query over it read a whole signature for each row of another, and each change all
# revisions, by a plan that was prepared while there were few.
#
# On SQLite, statements are written for a table without statistics, and statistics can make the planner's choices worse:
# a query about nested teams took ten times as long after `ANALYZE`. So every run of `migrate` drops the results of an
# `ANALYZE`.

FEWEST = 500  # facts: fewer are quick to read by any index
SHARE = 0.1  # of the number of facts at the last ANALYZE


def forget_statistics() -> None:
    if connection.vendor == "sqlite":
        for (name,) in fetch("SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat1', 'sqlite_stat4')"):
            execute(f"DROP TABLE {name}")


@dataclass
class _Stored:
    """Facts that this process has stored since its last ANALYZE. Threads may miscount a few: it is for statistics."""

    number: int = 0
    due: int = FEWEST  # check the statistics at this number: a check takes three statements


_stored = _Stored()


def note_stored(number: int) -> None:
    """Note that this transaction stores this many facts; once it is committed, run ANALYZE if it is due.

    On SQLite, statements name their index, and no statistics are needed.
    """
    if number and connection.vendor == "postgresql":
        # `robust`: an error here must not turn a committed change into an error response.
        transaction.on_commit(lambda: _look(number), robust=True)


def _look(more: int) -> None:
    _stored.number += more
    stored = _stored.number
    if stored < _stored.due:
        return
    with transaction.atomic():
        ((counted,),) = fetch("SELECT reltuples FROM pg_class WHERE oid = 'authz_fact'::regclass")
        if stored < max(FEWEST, counted * SHARE):
            _stored.due = stored + FEWEST
            return
        _stored.number, _stored.due = _stored.number - stored, FEWEST
        execute("SET LOCAL statement_timeout = 0")
        execute("ANALYZE (SKIP_LOCKED) authz_fact, authz_revision")
