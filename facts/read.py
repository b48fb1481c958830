"""Reading what is stored, and only that: nothing here is derived.

All facts of a pattern; or for people a page of them, at a price that does not depend on how many facts there are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from django.db import connection

from facts import models
from facts.indexes import PAST, STORED, condition, hint, leading
from facts.models import COLUMNS, INDEX_CONDITIONS, Row
from facts.numbering import signature_numbers, types_of_text
from facts.table import fact_table
from facts.wire import Argument, Fact, Pattern
from policy.rules.program import Signature
from policy.values import Value

PAGE = 100  # facts

_NAMES = ", ".join(COLUMNS)


@dataclass(frozen=True, slots=True)
class Stats:
    roles: int
    relations: int
    facts: int


@dataclass(frozen=True, slots=True)
class Filed:
    """A fact, and the row where it is."""

    row: Row
    fact: Fact


@dataclass(frozen=True, slots=True)
class Page:
    facts: tuple[Filed, ...]
    more: bool


# ---- all of them -------------------------------------------------------------------------------------------------


class Then(Protocol):
    """A moment of the past: a revision, and its time in microseconds."""

    @property
    def revision(self) -> int: ...
    @property
    def at(self) -> int: ...


def find(
    environment_id: int, predicate: str | None, args: Sequence[Argument], moment: Then | None = None
) -> list[Fact]:
    """The facts that begin with these arguments, by predicate and then by arguments; now, or as of a moment."""
    numbers = signature_numbers(environment_id)
    while True:
        found = _find(matching(numbers, predicate, tuple(args), open_ended=True), args, moment)
        # Signatures are only ever added: the rows are of one moment if none was since they were listed.
        latest = signature_numbers(environment_id)
        if latest == numbers:
            return sorted(found, key=lambda fact: (fact.predicate, fact.args))
        numbers = latest


def every(environment_id: int, moment: Then | None = None) -> Iterator[Fact]:
    """All facts, one at a time, by signature and then by arguments; now, or as of a moment."""
    signatures = {number: signature for signature, number in signature_numbers(environment_id).items()}
    if signatures:
        order = f"sig, {_NAMES}"
        here = f"sig IN ({_listed(signatures)})"
        if moment is None:
            found = f"SELECT {order} FROM fact WHERE {here}"
        else:
            revision, at = int(moment.revision), int(moment.at)
            found = _as_of(order, here, [], str(revision), str(at))
        rows = fact_table().stream(f"{found} ORDER BY {order}")
        yield from (fact_of_row(signatures[row[0]], row[1:]) for row in rows)


def count(environment_id: int, pattern: Pattern) -> int:
    """How many facts the pattern matches."""
    numbers = matching(signature_numbers(environment_id), pattern.predicate, pattern.args)
    conditions, ids = id_conditions(pattern.args)
    return sum(_counts(list(numbers.values()), conditions, ids).values())


def _find(numbers: dict[Signature, int], args: Sequence[Argument], moment: Then | None) -> list[Fact]:
    if not numbers:
        return []
    signatures = {number: signature for signature, number in numbers.items()}
    conditions, ids = id_conditions(args)
    here = f"sig IN ({_listed(signatures)}){conditions}"
    values: tuple[str | int, ...] = ids
    if moment is None:
        statement = f"SELECT sig, {_NAMES} FROM fact WHERE {here}"
    else:
        known = [name for name, arg in zip(COLUMNS, args) if arg.id is not None]
        statement = _as_of(f"sig, {_NAMES}", here, known)
        revision, at = moment.revision, moment.at
        values = (*ids, revision, at, *ids, revision, revision, at)
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [fact_of_row(signatures[row[0]], row[1:]) for row in cursor.fetchall()]


def _as_of(columns: str, here: str, known: Sequence[str], revision: str = "%s", at: str = "%s") -> str:
    """Facts that held at a revision: those that are stored still, and those that are past."""
    held = f"since + 0 <= {revision} AND (expires_at IS NULL OR expires_at > {at})"
    stored = f"SELECT {columns} FROM {_looked_up(STORED, known)} {here} AND {held}"
    past = f"SELECT {columns} FROM {_looked_up(PAST, known)} {here} AND until > {revision} AND {held}"
    return f"{stored} UNION ALL {past}"


def _looked_up(table: str, known: Sequence[str]) -> str:
    column = leading(known)
    named = f"{table}{hint(table, column)}" if connection.vendor == "sqlite" else table
    needed = condition(table, column)
    return f"{named} WHERE {needed} AND" if needed else f"{named} WHERE"


# ---- pages -------------------------------------------------------------------------------------------------------


def page_of(kinds: list[models.Signature], after: Row | None = None) -> Page:
    """The facts of these kinds that follow a row, in the order of their key."""
    found: list[Filed] = []
    for kind in sorted(kinds, key=lambda each: each.id):
        if after is None or kind.id >= after[0]:
            start = after[1:] if after is not None and kind.id == after[0] else None
            found += _following(kind, start, PAGE + 1 - len(found))
        if len(found) > PAGE:
            break
    return Page(tuple(found[:PAGE]), len(found) > PAGE)


def search(kinds: list[models.Signature], text: str, type_name: str = "") -> Page:
    """Facts with this id in any place (of the type, if one is given), by the index of each place."""
    found: dict[Row, Filed] = {}
    for kind in kinds:
        for place, name in enumerate(types_of_text(kind.types)):
            if type_name in ("", name):
                found |= {filed.row: filed for filed in _with_id(kind, COLUMNS[place], text)}
        if len(found) > PAGE:
            break
    return Page(tuple(found.values())[:PAGE], len(found) > PAGE)


def facts_about(numbers: Mapping[Signature, int], value: Value, most: int) -> Iterator[Fact]:
    """Facts that mention the value: so many at most for each place where it may stand."""
    by_number = {number: signature for signature, number in numbers.items()}
    with connection.cursor() as cursor:
        for number, column in places_of(numbers, value.type):
            condition = f"sig = %s AND {column} = %s{index_condition(column)}"
            cursor.execute(f"SELECT {_NAMES} FROM fact WHERE {condition} LIMIT %s", (number, value.id, most))
            yield from [fact_of_row(by_number[number], row) for row in cursor.fetchall()]


def _following(kind: models.Signature, start: tuple[str, ...] | None, limit: int) -> Iterator[Filed]:
    condition = f"AND ({_NAMES}) > (%s, %s, %s, %s, %s)" if start else ""
    statement = f"SELECT sig, {_NAMES} FROM fact WHERE sig = %s {condition} ORDER BY {_NAMES} LIMIT %s"
    return _filed(kind, statement, (kind.id, *(start or ()), limit))


def _with_id(kind: models.Signature, column: str, text: str) -> Iterator[Filed]:
    statement = f"SELECT sig, {_NAMES} FROM fact WHERE sig = %s AND {column} = %s{index_condition(column)} LIMIT %s"
    return _filed(kind, statement, (kind.id, text, PAGE + 1))


def _filed(kind: models.Signature, statement: str, values: tuple) -> Iterator[Filed]:
    signature = Signature(kind.predicate, types_of_text(kind.types))
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall()
    return (Filed(row, fact_of_row(signature, row[1:])) for row in rows)


# ---- counts ------------------------------------------------------------------------------------------------------


def stats(environment_id: int) -> Stats:
    numbers = signature_numbers(environment_id)
    counts = _counts(list(numbers.values()))
    roles = sum(counts.get(number, 0) for signature, number in numbers.items() if signature.predicate == "has_role")
    relations = sum(
        counts.get(number, 0) for signature, number in numbers.items() if signature.predicate == "has_relation"
    )
    return Stats(roles, relations, sum(counts.values()))


def count_up_to(most: int, numbers: Iterable[int]) -> int:
    """How many facts there are of the signatures with these numbers, counted no further than `most`."""
    counted = 0
    with connection.cursor() as cursor:
        for number in numbers:
            limited = "SELECT 1 FROM fact WHERE sig = %s LIMIT %s"
            cursor.execute(f"SELECT COUNT(*) FROM ({limited}) seen", (number, most - counted))
            counted += cursor.fetchone()[0]
            if counted >= most:
                break
    return counted


def _counts(numbers: Sequence[int], conditions: str = "", ids: tuple[str, ...] = ()) -> dict[int, int]:
    if not numbers:
        return {}
    statement = f"SELECT sig, COUNT(*) FROM fact WHERE sig IN ({_listed(numbers)}){conditions} GROUP BY sig"
    with connection.cursor() as cursor:
        cursor.execute(statement, ids)
        return dict(cursor.fetchall())


# ---- what patterns and rows mean ---------------------------------------------------------------------------------


def matching(
    numbers: dict[Signature, int], predicate: str | None, args: tuple[Argument, ...], open_ended: bool = False
) -> dict[Signature, int]:
    """The signatures whose facts a pattern may match; `open_ended` patterns match longer facts too."""
    return {
        signature: number
        for signature, number in numbers.items()
        if (predicate is None or signature.predicate == predicate)
        and (len(args) <= len(signature.types) if open_ended else len(args) == len(signature.types))
        and all(arg.type in (None, name) for arg, name in zip(args, signature.types))
    }


def id_conditions(args: Sequence[Argument]) -> tuple[str, tuple[str, ...]]:
    """The SQL, to follow `sig = …`, that finds rows by the ids that are given, and its parameters."""
    given = [(name, arg.id) for name, arg in zip(COLUMNS, args) if arg.id is not None]
    conditions = "".join(f" AND {name} = %s{index_condition(name)}" for name, _ in given)
    return conditions, tuple(text for _, text in given)


def index_condition(column: str) -> str:
    """What a condition on the column must come with, for its index to be used."""
    return f" AND {INDEX_CONDITIONS[column]}" if column in INDEX_CONDITIONS else ""


def places_of(numbers: Mapping[Signature, int], type_name: str) -> list[tuple[int, str]]:
    """Where facts mention values of the type: numbers of signatures, each with a column."""
    return [
        (number, column)
        for signature, number in numbers.items()
        for column, name in zip(COLUMNS, signature.types)
        if name == type_name
    ]


def fact_of_row(signature: Signature, ids: Sequence[str]) -> Fact:
    return Fact(signature.predicate, tuple([Value(name, text) for name, text in zip(signature.types, ids)]))


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers)
