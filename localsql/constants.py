"""Rows of constants beside columns: which rows can match, and how their own columns are compared."""

from __future__ import annotations

from collections.abc import Callable

from checks.engine.plan.plan import Branch, Same
from checks.engine.rules.clauses import Col
from checks.engine.sql.render import Scope
from localsql.dialects import Typed
from localsql.families import Family, is_possible
from localsql.relations import ConstantRows

Rows = list[tuple[str, ...]]
Columns = Callable[[str], Typed]  # gives a column of a source, by its name in the plan


def fitting(source: ConstantRows, branch: Branch, scope: Scope[Columns]) -> Rows:
    """Return the rows without those that have a value which a column that must equal it cannot have.

    rows ('7',), ('x',), whose column must equal a column of integers  ->  ('7',)
    """
    rows: Rows = list(source.rows)
    for condition in branch.conditions:
        match condition:
            case Same(Col(number, name), Col() as other) if number == source.number:
                rows = _possible(rows, int(name[1:]), other, scope)
            case Same(Col() as other, Col(number, name)) if number == source.number:
                rows = _possible(rows, int(name[1:]), other, scope)
    return rows


def _possible(rows: Rows, index: int, other: Col, scope: Scope[Columns]) -> Rows:
    if other.source not in scope.seen:
        return rows  # a source that is not in scope yet
    family = scope.seen[other.source](other.name).family
    return [row for row in rows if is_possible(row[index], family)]


def families_of(rows: Rows, wanted: list[Family]) -> list[Family]:
    """Return the wanted families; text for a column in which some value does not fit."""
    return [
        family if all(not row[index] or is_possible(row[index], family) for row in rows) else Family.TEXT
        for index, family in enumerate(wanted)
    ]
