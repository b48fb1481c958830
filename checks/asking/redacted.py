"""Questions without ids, for logs: types, and the names that the policy has; and how many tables their plans read."""

from __future__ import annotations

from checks.asking import by_rows, snapshot
from checks.asking.prepared import StatementKey
from checks.asking.question import NAME, Outline
from checks.asking.session import LiveSession
from checks.engine.compile import Root


def redacted_questions(key: StatementKey) -> list[str]:
    """Return the questions of a statement: `allow(User _, String "read", Repository _)`. No names but the policy's."""
    return [redacted(each) if isinstance(each, Outline) else redacted_root(each) for each in key.asked]


def redacted(outline: Outline) -> str:
    """Return a question with `_` in place of given ids, and `?` in place of ids that are asked for."""
    shown = {}
    for name, type_name, kind, place in outline.variables:
        value = f'"{place}"' if kind == NAME else "?" if name in outline.outs else "_"
        shown[name] = f"{type_name} {value}"
    return " and ".join(
        f"{predicate}({', '.join(shown[name] for name in names)})" for predicate, names in outline.calls
    )


def redacted_root(root: Root) -> str:
    """Return a question that was put to the engine without an outline (as explanations do), with types alone."""
    return " and ".join(f"{call.predicate}({', '.join(call.types)})" for call in root.calls)


def tables_read(key: StatementKey) -> int | None:
    """Return how many tables a statement reads; None where it is not remembered any more."""
    if key.by_rows:
        return by_rows.tables_read(key)
    for statements in (LiveSession.statements, snapshot.published):
        if (found := statements.get(key)) is not None:
            return found.reads
    return None
