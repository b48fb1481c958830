"""Looking through stored facts page by page, at a price that does not depend on how many there are."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.db import connection

from facts.bundles import Row
from facts.models import COLUMNS, INDEX_CONDITIONS, Signature
from facts.read import fact_of_row
from facts.signatures import types_of_text
from facts.wire import Fact
from policy.rules import program

PAGE = 100  # facts
COUNTED = 10_000  # facts: beyond, "more" is told

_NAMES = ", ".join(COLUMNS)


@dataclass(frozen=True, slots=True)
class Filed:
    """A fact, and the row where it is."""

    row: Row
    fact: Fact


@dataclass(frozen=True, slots=True)
class Page:
    facts: tuple[Filed, ...]
    more: bool


def page_of(kinds: list[Signature], after: Row | None = None) -> Page:
    """The facts of these kinds that follow a row, in the order of their key."""
    found: list[Filed] = []
    for kind in sorted(kinds, key=lambda each: each.id):
        if after is None or kind.id >= after[0]:
            start = after[1:] if after is not None and kind.id == after[0] else None
            found += _following(kind, start, PAGE + 1 - len(found))
        if len(found) > PAGE:
            break
    return Page(tuple(found[:PAGE]), len(found) > PAGE)


def search(kinds: list[Signature], text: str, type_name: str = "") -> Page:
    """Facts with this id in any place (of the type, if one is given), by the index of each place."""
    found: dict[Row, Filed] = {}
    for kind in kinds:
        for place, name in enumerate(types_of_text(kind.types)):
            if type_name in ("", name):
                found |= {filed.row: filed for filed in _with_id(kind, COLUMNS[place], text)}
        if len(found) > PAGE:
            break
    return Page(tuple(found.values())[:PAGE], len(found) > PAGE)


def count_up_to_limit(kinds: list[Signature]) -> int:
    """How many facts of these kinds there are; COUNTED + 1 stands for more than COUNTED."""
    counted = 0
    with connection.cursor() as cursor:
        for kind in kinds:
            limit = COUNTED + 1 - counted
            cursor.execute("SELECT COUNT(*) FROM (SELECT 1 FROM fact WHERE sig = %s LIMIT %s) seen", (kind.id, limit))
            counted += cursor.fetchone()[0]
            if counted > COUNTED:
                break
    return counted


def _following(kind: Signature, start: tuple[str, ...] | None, limit: int) -> Iterator[Filed]:
    condition = f"AND ({_NAMES}) > (%s, %s, %s, %s, %s)" if start else ""
    statement = f"SELECT sig, {_NAMES} FROM fact WHERE sig = %s {condition} ORDER BY {_NAMES} LIMIT %s"
    return _filed(kind, statement, (kind.id, *(start or ()), limit))


def _with_id(kind: Signature, column: str, text: str) -> Iterator[Filed]:
    condition = f"AND {INDEX_CONDITIONS[column]}" if column in INDEX_CONDITIONS else ""
    statement = f"SELECT sig, {_NAMES} FROM fact WHERE sig = %s AND {column} = %s {condition} LIMIT %s"
    return _filed(kind, statement, (kind.id, text, PAGE + 1))


def _filed(kind: Signature, statement: str, values: tuple) -> Iterator[Filed]:
    signature = program.Signature(kind.predicate, types_of_text(kind.types))
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall()
    return (Filed(row, fact_of_row(signature, row[1:])) for row in rows)
