"""Our side: stored facts of a pattern, by the bytes of their ids, as of one moment; and those ended since."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import cast

from django.db import connection

from facts.ends import lasting
from facts.models import COLUMNS
from facts.numbering import numbers_and_ends, signature_numbers
from facts.read import index_condition
from facts.table import fact_table
from localsql.binding_keys import BindingKey
from localsql.sync.rows import Ids


def stored_ids(environment_id: int, key: BindingKey) -> Generator[Ids, None, None]:
    """Yield the ids of the pattern's variables, of all stored facts that have not ended."""
    numbers, may_end = numbers_and_ends(environment_id)
    number = numbers.get(key.signature)
    if number is None:
        return
    conditions, values = [f"sig = {int(number)}"], []
    for name, constant in zip(COLUMNS, key.constants):
        if constant is not None:
            conditions.append(f"{name} = %s{index_condition(name)}")
            values.append(constant)
    if number in may_end:
        conditions.append(lasting())
    wanted = [name for name, constant in zip(COLUMNS, key.constants) if constant is None]
    named = ", ".join(wanted)
    order = f" ORDER BY {named}" if wanted else ""
    statement = f"SELECT {named or 'sig'} FROM fact WHERE {' AND '.join(conditions)}{order}"
    rows = fact_table().stream(statement, values)
    if wanted:
        yield from cast(Iterator[Ids], rows)
    else:
        yield from (() for _ in rows)


def ended_by_others(
    environment_id: int, key: BindingKey, revision: int, own: Sequence[int]
) -> set[tuple[str, ...]]:
    """Return all ids of facts of the pattern's signature that were ended after the revision, except by `own` ones."""
    number = signature_numbers(environment_id).get(key.signature)
    if number is None:
        return set()
    names = ", ".join(COLUMNS[: len(key.constants)])
    others = f" AND until NOT IN ({', '.join(str(int(each)) for each in own)})" if own else ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {names} FROM past_fact WHERE sig = {int(number)} AND until > %s{others}", (revision,))
        return {tuple(row) for row in cursor.fetchall()}
