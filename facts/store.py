"""Changing what is stored. Every change is one transaction, whole or not at all, in the order given."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from django.conf import settings
from django.db import connection

from facts.accept import check_facts
from facts.batches import rows_of
from facts.models import COLUMNS, Row
from facts.numbering import signature_number, signature_numbers
from facts.read import id_conditions, matching
from facts.table import fact_table
from facts.wire import Fact, Pattern
from policy.active import program_of_version
from policy.errors import TooLarge
from policy.offsets import advance, changing
from policy.rules.program import Signature


@dataclass(frozen=True, slots=True)
class Inserts:
    facts: Sequence[Fact]
    path: str | None = ""  # of the array in the request, for messages; None where the fact is all of the request


@dataclass(frozen=True, slots=True)
class Deletes:
    patterns: Sequence[Pattern]


Change = Inserts | Deletes


@dataclass(frozen=True, slots=True)
class Applied:
    offset: int
    deleted: int = 0


def apply(environment_id: int, changes: Iterable[Change]) -> Applied:
    """Make the changes, all or none; the offset at which they are committed."""
    with changing():
        turn = advance(environment_id)
        program = program_of_version(turn.policy_version_id)
        deleted = inserted = 0
        for change in changes:
            match change:
                case Inserts(facts, path):
                    check_facts(program, facts, path)
                    rows = rows_of_facts(environment_id, facts)
                    inserted += fact_table().insert(rows) if rows else 0
                case Deletes(patterns):
                    deleted += _delete(environment_id, patterns)
                    _check_deleted(deleted)
        fact_table().note_stored(inserted)
    return Applied(turn.offset, deleted)


def clear(environment_id: int) -> Applied:
    """Remove every fact of the environment; its policy and its signatures' numbers stay."""
    with changing():
        turn = advance(environment_id)
        fact_table().lift_time_limit()
        deleted = 0
        with connection.cursor() as cursor:
            for number in signature_numbers(environment_id).values():
                cursor.execute("DELETE FROM fact WHERE sig = %s", (number,))
                deleted += cursor.rowcount
    return Applied(turn.offset, deleted)


def copy_facts(origin_id: int, target_id: int) -> None:
    """Give one environment the facts of another."""
    with changing():
        advance(target_id)
        names = ", ".join(COLUMNS)
        with connection.cursor() as cursor:
            for signature, number in signature_numbers(origin_id).items():
                copied = f"INSERT INTO fact SELECT %s, {names} FROM fact WHERE sig = %s ON CONFLICT DO NOTHING"
                cursor.execute(copied, (signature_number(target_id, signature), number))
                fact_table().note_stored(cursor.rowcount)


# ---- inserting ------------------------------------------------------------------------------------------


def rows_of_facts(environment_id: int, facts: Sequence[Fact]) -> list[Row]:
    """The facts' rows, once each."""
    return list(dict.fromkeys(rows_of(facts, lambda signature: signature_number(environment_id, signature))))


# ---- deleting -------------------------------------------------------------------------------------------


def delete_exactly(environment_id: int, patterns: Sequence[Pattern]) -> int:
    """The facts that patterns with all ids say."""
    return _delete_rows(signature_numbers(environment_id), patterns) if patterns else 0


def _delete(environment_id: int, patterns: Sequence[Pattern]) -> int:
    if not patterns:
        return 0
    numbers = signature_numbers(environment_id)
    runs = [(exact, list(run)) for exact, run in groupby(patterns, is_exact)]
    return sum(_delete_rows(numbers, run) if exact else _delete_matches(numbers, run) for exact, run in runs)


def is_exact(pattern: Pattern) -> bool:
    """Whether it is one fact at most that the pattern matches."""
    return all(arg.id is not None for arg in pattern.args)


def _delete_rows(numbers: dict[Signature, int], patterns: Iterable[Pattern]) -> int:
    rows: list[Row] = []
    for pattern in patterns:
        number = numbers.get(Signature(pattern.predicate, tuple(arg.type or "" for arg in pattern.args)))
        if number is not None:
            ids = [arg.id or "" for arg in pattern.args]
            rows.append((number, *(ids + [""] * (len(COLUMNS) - len(ids)))))
    return fact_table().delete(rows) if rows else 0


def _delete_matches(numbers: dict[Signature, int], patterns: Iterable[Pattern]) -> int:
    fact_table().lift_time_limit()
    deleted = 0
    with connection.cursor() as cursor:
        for pattern in patterns:
            conditions, ids = id_conditions(pattern.args)
            for number in matching(numbers, pattern.predicate, pattern.args).values():
                cursor.execute(f"DELETE FROM fact WHERE sig = %s{conditions}", (number, *ids))
                deleted += cursor.rowcount
    return deleted


def _check_deleted(deleted: int) -> None:
    limit = settings.MAX_DELETE_MATCHES
    if limit and deleted > limit:
        raise TooLarge(f"the deletes match more than {limit} facts, the limit of MAX_DELETE_MATCHES")
