"""Reading what is stored, and only that: nothing here is derived."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.db import connection

from facts.models import COLUMNS
from facts.rows import rows_here
from facts.signatures import matching, signature_numbers
from facts.store import id_conditions
from facts.wire import Argument, Fact, Pattern
from policy.rules.program import Signature
from policy.values import Value

_NAMES = ", ".join(COLUMNS)


@dataclass(frozen=True, slots=True)
class Stats:
    roles: int
    relations: int
    facts: int


def find(environment_id: int, predicate: str | None, args: Sequence[Argument]) -> list[Fact]:
    """The facts that begin with these arguments, by predicate and then by arguments."""
    numbers = signature_numbers(environment_id)
    while True:
        found = _find(matching(numbers, predicate, tuple(args), open_ended=True), args)
        # Signatures are only ever added: the rows are of one moment if none was since they were listed.
        latest = signature_numbers(environment_id)
        if latest == numbers:
            return sorted(found, key=lambda fact: (fact.predicate, fact.args))
        numbers = latest


def every(environment_id: int) -> Iterator[Fact]:
    """All facts, one at a time, by signature and then by arguments."""
    signatures = {number: signature for signature, number in signature_numbers(environment_id).items()}
    if signatures:
        order = f"sig, {_NAMES}"
        rows = rows_here().stream(f"SELECT {order} FROM fact WHERE sig IN ({_listed(signatures)}) ORDER BY {order}")
        yield from (fact_of_row(signatures[row[0]], row[1:]) for row in rows)


def count(environment_id: int, pattern: Pattern) -> int:
    """How many facts the pattern matches."""
    numbers = matching(signature_numbers(environment_id), pattern.predicate, pattern.args)
    conditions, ids = id_conditions(pattern.args)
    return sum(_counts(list(numbers.values()), conditions, ids).values())


def stats(environment_id: int) -> Stats:
    numbers = signature_numbers(environment_id)
    counts = _counts(list(numbers.values()))
    roles = sum(counts.get(number, 0) for signature, number in numbers.items() if signature.predicate == "has_role")
    relations = sum(
        counts.get(number, 0) for signature, number in numbers.items() if signature.predicate == "has_relation"
    )
    return Stats(roles, relations, sum(counts.values()))


def _find(numbers: dict[Signature, int], args: Sequence[Argument]) -> list[Fact]:
    if not numbers:
        return []
    signatures = {number: signature for signature, number in numbers.items()}
    conditions, ids = id_conditions(args)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT sig, {_NAMES} FROM fact WHERE sig IN ({_listed(signatures)}){conditions}", ids)
        return [fact_of_row(signatures[row[0]], row[1:]) for row in cursor.fetchall()]


def fact_of_row(signature: Signature, ids: Sequence[str]) -> Fact:
    return Fact(signature.predicate, tuple([Value(name, text) for name, text in zip(signature.types, ids)]))


def _counts(numbers: Sequence[int], conditions: str = "", ids: tuple[str, ...] = ()) -> dict[int, int]:
    if not numbers:
        return {}
    statement = f"SELECT sig, COUNT(*) FROM fact WHERE sig IN ({_listed(numbers)}){conditions} GROUP BY sig"
    with connection.cursor() as cursor:
        cursor.execute(statement, ids)
        return dict(cursor.fetchall())


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers)
