"""Read stored facts, never derived ones: all facts of a pattern, some that mention a value, and counts.

Pages of facts are in `facts/keyset_pages.py`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AnySet
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import Error, connection, transaction

from facts.models import COLUMNS, PAST, ROW_LENGTH, STORED, leading
from facts.numbering import Numbered, numbers_as_of, signature_numbers
from facts.table import IDS, KEY, ended, equals, fact_table, fetch, held, lasting, of_signatures, select
from facts.wire import Argument, Fact, FactPattern
from policy.moments import Moment, check_kept
from policy.rules.program import Signature
from policy.values import Value

# ---- all facts of a pattern --------------------------------------------------------------------------------------


class FactsAt(NamedTuple):
    facts: list[Fact]
    revision: int  # as of which they were read


def found(
    environment_id: int, predicate: str | None, args: Sequence[Argument], moment: Moment | None = None
) -> FactsAt:
    """Return the facts that begin with these arguments, by predicate and then by arguments; now, or as of a moment."""
    kinds = numbers_as_of(environment_id)
    while True:
        numbers = matching(kinds.numbers, predicate, tuple(args), open_ended=True)
        facts, revision = _find(environment_id, kinds.only(numbers), args, moment)
        # Signatures are only ever added, or marked as ones whose facts may expire. If neither has happened since they
        # were listed, the statement was complete. Otherwise retry.
        latest = numbers_as_of(environment_id)
        if latest.marks == kinds.marks:
            if moment is not None:
                check_kept(environment_id, moment.revision)
            return FactsAt(sorted(facts, key=lambda fact: (fact.predicate, fact.args)), revision)
        kinds = latest


def every(environment_id: int, moment: Moment | None = None) -> Iterator[Fact]:
    """Yield all facts, one at a time, by signature and then by arguments; now, or as of a moment."""
    with read_snapshot():  # of the signatures and of their facts
        kinds = numbers_as_of(environment_id)
        if moment is not None:
            check_kept(environment_id, moment.revision)
        if kinds.numbers:
            found = _selected(kinds) if moment is None else _selected_then(kinds, moment)
            for row in fact_table().stream(f"{found} ORDER BY {KEY}"):
                yield _fact_of(kinds, row)


def count(environment_id: int, pattern: FactPattern) -> int:
    """Return how many facts the pattern matches."""
    numbers = matching(signature_numbers(environment_id), pattern.predicate, pattern.args)
    conditions, ids = id_conditions(pattern.args)
    return sum(_counts(list(numbers.values()), conditions, ids).values())


def _find(environment_id: int, kinds: Numbered, args: Sequence[Argument], moment: Moment | None) -> FactsAt:
    conditions, ids = id_conditions(args)
    known = [name for name, arg in zip(COLUMNS, args) if arg.id is not None]
    if moment is None:
        rows: list[Any] = fact_table().fetched(_selected_now(environment_id, kinds, conditions, known), ids)
    else:
        rows = fact_table().fetched(_selected_then(kinds, moment, conditions, known), (*ids, *ids))
    revision = next((row[0] for row in rows if row[1] is None), 0) if moment is None else moment.revision
    return FactsAt([_fact_of(kinds, row) for row in rows if row[1] is not None], revision)


def _selected_now(environment_id: int, kinds: Numbered, conditions: str, known: Sequence[str]) -> str:
    """Return the same as `_selected`, and the environment's offset in a row without ids."""
    width = ROW_LENGTH + bool(kinds.ending)
    offset = f'SELECT "offset"{", NULL" * (width - 1)} FROM authz_environment WHERE id = {int(environment_id)}'
    return f"{offset} UNION ALL {_selected(kinds, conditions, known)}"


def _selected(kinds: Numbered, conditions: str = "", known: Sequence[str] = ()) -> str:
    """Return the SELECT of the facts of these signatures that have not expired.

    If none of them may expire, it reads only the key, which an index covers.
    """
    here = f"{of_signatures(kinds.numbers.values())}{conditions}"
    if not kinds.ending:
        return select(KEY, here)
    return select(f"{KEY}, expires_at", here, lasting(), by=leading(known))


def _selected_then(kinds: Numbered, moment: Moment, conditions: str = "", known: Sequence[str] = ()) -> str:
    """Return the same as of a revision: from the facts that are still stored, and from past facts."""
    here, column = f"{of_signatures(kinds.numbers.values())}{conditions}", leading(known)
    return " UNION ALL ".join(
        select(f"{KEY}, expires_at", here, held(table, moment.revision, moment.at), table=table, by=column)
        for table in (STORED, PAST)
    )


def _fact_of(kinds: Numbered, row: Sequence[Any]) -> Fact:
    """Return the fact of a row that was selected so; the expiry follows the key."""
    return fact_of_row(kinds.by_number[row[0]], row[1:ROW_LENGTH], *row[ROW_LENGTH:])


# ---- some facts --------------------------------------------------------------------------------------------------


def facts_about(numbers: Mapping[Signature, int], value: Value, most: int) -> Iterator[Fact]:
    """Yield facts that mention the value: at most `most` for each column that may contain it."""
    by_number = {number: signature for signature, number in numbers.items()}
    for number, column in places_of(numbers, value.type):
        rows = fetch(select(IDS, "sig = %s", equals(column), limit="%s"), (number, value.id, most))
        yield from [fact_of_row(by_number[number], row) for row in rows]


def facts_of(numbers: Mapping[Signature, int], most: int) -> Iterator[Fact]:
    """Yield at most `most` facts of each signature."""
    for signature, number in numbers.items():
        rows = fetch(select(IDS, "sig = %s", limit="%s"), (number, most))
        yield from [fact_of_row(signature, row) for row in rows]


# ---- counts ------------------------------------------------------------------------------------------------------


def stats(environment_id: int) -> dict[str, int]:
    kinds = numbers_as_of(environment_id)
    counts = _lasting_counts(list(kinds.numbers.values()), kinds.ending_numbers)
    by_predicate: Counter[str] = Counter()
    for signature, number in kinds.numbers.items():
        by_predicate[signature.predicate] += counts.get(number, 0)
    roles, relations = by_predicate["has_role"], by_predicate["has_relation"]
    return {"num_roles": roles, "num_relations": relations, "num_facts": by_predicate.total()}


def _counts(numbers: Sequence[int], conditions: str = "", ids: tuple[str, ...] = ()) -> dict[int, int]:
    if not numbers:
        return {}
    return dict(fetch(select("sig, COUNT(*)", f"{of_signatures(numbers)}{conditions}", group="sig"), ids))


def _lasting_counts(numbers: Sequence[int], may_end: AnySet[int]) -> dict[int, int]:
    """Return how many facts have not expired: all except those that wait to be swept, which are few."""
    if not may_end:
        return _counts(numbers)
    stored = select("sig, COUNT(*) AS count", of_signatures(numbers), group="sig")
    # The plus keeps databases from using the index on the signature, as in `facts/history.py`.
    gone = select("+sig, -COUNT(*)", f"+{of_signatures(may_end)}", ended(), group="+sig")
    rows = fetch(f"SELECT sig, SUM(count) FROM ({stored} UNION ALL {gone}) counted GROUP BY sig")
    return {number: int(count) for number, count in rows}


# ---- patterns and rows -------------------------------------------------------------------------------------------


def matching(
    numbers: Mapping[Signature, int], predicate: str | None, args: tuple[Argument, ...], open_ended: bool = False
) -> dict[Signature, int]:
    """Return the signatures whose facts a pattern may match; `open_ended` patterns match longer facts too."""
    return {
        signature: number
        for signature, number in numbers.items()
        if (predicate is None or signature.predicate == predicate)
        and (len(args) <= len(signature.types) if open_ended else len(args) == len(signature.types))
        and all(arg.type in (None, name) for arg, name in zip(args, signature.types))
    }


def id_conditions(args: Sequence[Argument]) -> tuple[str, tuple[str, ...]]:
    """Return the SQL, to follow `sig = …`, that finds rows by the given ids, and its parameters."""
    given = [(name, arg.id) for name, arg in zip(COLUMNS, args) if arg.id is not None]
    conditions = "".join(f" AND {equals(name)}" for name, _ in given)
    return conditions, tuple(text for _, text in given)


def places_of(numbers: Mapping[Signature, int], type_name: str) -> list[tuple[int, str]]:
    """Return where facts mention values of the type: numbers of signatures, each with a column."""
    return [
        (number, column)
        for signature, number in numbers.items()
        for column, name in zip(COLUMNS, signature.types)
        if name == type_name
    ]


def fact_of_row(signature: Signature, ids: Sequence[str], expires_at: int | None = None) -> Fact:
    values = tuple([Value(name, text) for name, text in zip(signature.types, ids)])
    return Fact(signature.predicate, values, expires_at)


# ---- snapshots ------------------------------------------------------------------------------------------------------


@contextmanager
def read_snapshot(has_time_limit: bool = False) -> Iterator[None]:
    """Open a read-only transaction whose statements all see one snapshot. It blocks no writer.

    On PostgreSQL, the statement timeout is disabled, unless `has_time_limit`.
    """
    if connection.in_atomic_block or _has_begun():  # the outer transaction determines the snapshot
        yield
    elif connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")  # `transaction.atomic` would take the write lock
            try:
                yield
            finally:
                try:
                    cursor.execute("ROLLBACK")
                except Error:
                    connection.close()  # else its next user would see the same snapshot
    else:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if not has_time_limit:
                    cursor.execute("SET LOCAL statement_timeout = 0")
            yield


def _has_begun() -> bool:
    """Return whether a transaction is open that Django does not know of: an outer `read_snapshot` on SQLite."""
    return connection.vendor == "sqlite" and connection.connection is not None and connection.connection.in_transaction
