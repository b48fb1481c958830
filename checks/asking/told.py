"""What may be told of a question whose ids may not: its shape without them, and how many tables it reads."""

from __future__ import annotations

from checks.asking import by_rows, snapshot
from checks.asking.question import NAME, Outline
from checks.asking.session import LiveSession, StatementKey
from checks.engine.compile import Root


def shapes_of(key: StatementKey) -> list[str]:
    """Return the questions of a statement: `allow(User _, String "read", Repository _)`. No names but the policy's."""
    return [shape_of(each) if isinstance(each, Outline) else shape_of_root(each) for each in key.asked]


def shape_of(outline: Outline) -> str:
    """Return a question with `_` in place of given ids, and `?` in place of ids that are asked for."""
    told = {}
    for name, type_name, kind, place in outline.variables:
        value = f'"{place}"' if kind == NAME else "?" if name in outline.outs else "_"
        told[name] = f"{type_name} {value}"
    return " and ".join(f"{predicate}({', '.join(told[name] for name in names)})" for predicate, names in outline.calls)


def shape_of_root(root: Root) -> str:
    """Return a question that was put to the engine without an outline (as explanations do), with types alone."""
    return " and ".join(f"{call.predicate}({', '.join(call.types)})" for call in root.calls)


def reads_of(key: StatementKey) -> int | None:
    """Return how many tables a statement reads; None where it is not remembered any more."""
    if key.by_rows:
        return by_rows.reads_of(key)
    for statements in (LiveSession.statements, snapshot.published):
        if (found := statements.get(key)) is not None:
            return found.reads
    return None
