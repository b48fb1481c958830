"""What people are told of a question that is not to be told: its shape, without its ids, and how large its plan is."""

from __future__ import annotations

from checks.asking import by_rows, snapshot
from checks.asking.question import NAME, Outline
from checks.asking.session import LiveSession, StatementKey
from checks.engine.compile import Root


def shapes_of(key: StatementKey) -> list[str]:
    """Return the questions of a statement: `allow(User _, String "read", Repository _)`. Names are the policy's own."""
    return [shape_of(each) if isinstance(each, Outline) else shape_of_root(each) for each in key.asked]


def shape_of(outline: Outline) -> str:
    """Return a question with `_` for what was asked about, and `?` for what was asked for."""
    told = {}
    for name, type_name, kind, place in outline.variables:
        value = f'"{place}"' if kind == NAME else "?" if name in outline.outs else "_"
        told[name] = f"{type_name} {value}"
    return " and ".join(f"{predicate}({', '.join(told[name] for name in names)})" for predicate, names in outline.calls)


def shape_of_root(root: Root) -> str:
    """Return what the engine was asked by a program, by types alone."""
    return " and ".join(f"{call.predicate}({', '.join(call.types)})" for call in root.calls)


def reads_of(key: StatementKey) -> int | None:
    """Return how many tables a statement reads; None where it is not remembered any more."""
    if key.by_rows:
        return by_rows.reads_of(key)
    for statements in (LiveSession.statements, snapshot.published):
        if (found := statements.get(key)) is not None:
            return found.reads
    return None
