"""Known rows as tables of a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checks.engine.plan.plan import Branch, Same
from checks.engine.rules.clauses import Col
from localsql.dialects import Typed
from localsql.families import Family, is_possible
from localsql.residual import Known, Mentioned
from localsql.scope import Scope

if TYPE_CHECKING:
    from localsql.render import Renderer

Rows = list[tuple[str, ...]]


def known_families(renderer: Renderer, source: Known, branch: Branch, scope: Scope) -> list[Family]:
    """As the columns' types say; as text where some value does not fit."""
    rows = _fitting(source, branch, scope)
    return [
        family if all(not row[index] or is_possible(row[index], family) for row in rows) else Family.TEXT
        for index, family in enumerate(map(renderer.layouts.family, source.types))
    ]


def known_table(renderer: Renderer, source: Known, branch: Branch, scope: Scope) -> str | None:
    dialect = renderer.dialect
    families = [scope.columns[source.number](f"k{index}").family for index in range(len(source.types))]
    rows = [
        [dialect.constant(text, family) or dialect.null(family) for text, family in zip(row, families)]
        for row in _fitting(source, branch, scope)
    ]
    columns = ", ".join(f"k{index}" for index in range(len(families)))
    key = (tuple(map(tuple, rows)), tuple(families))
    return renderer.table_named(key, "k", lambda: f"({columns}) AS ({dialect.rows(rows)})" if rows else None)


def _fitting(source: Known, branch: Branch, scope: Scope) -> Rows:
    """The rows without those that a column which must equal theirs cannot have."""
    rows: Rows = list(source.rows)
    for condition in branch.conditions:
        match condition:
            case Same(Col(number, name), Col() as other) if number == source.number:
                rows = _possible(rows, int(name[1:]), other, scope)
            case Same(Col() as other, Col(number, name)) if number == source.number:
                rows = _possible(rows, int(name[1:]), other, scope)
    return rows


def _possible(rows: Rows, index: int, other: Col, scope: Scope) -> Rows:
    if other.source not in scope.columns:
        return rows  # a source that is named later
    family = scope.columns[other.source](other.name).family
    return [row for row in rows if is_possible(row[index], family)]


def mentioned_table(renderer: Renderer, source: Mentioned) -> str:
    """The ids at places of the caller's tables, the known ones, and NULL for all others."""
    family = renderer.layouts.family(source.type)
    arms = [f"SELECT {renderer.dialect.null(family)} AS v"]
    constants = renderer.dialect.constants(source.ids, family)
    arms += [renderer.constants(constants)] if constants else []
    for place, index in source.places:
        typed = Typed(f"a{index}", renderer.tables.binding(place).family_at(index))
        shown = renderer.converted(typed, family)
        arms.append(f"SELECT {shown} FROM {renderer.binding_table(place)} WHERE a{index} IS NOT NULL")
    return f"({' UNION '.join(arms)})"
