"""Choose an index for looking up facts by known columns, as SQLite has no statistics to do so.

SQLite's planner rates an index that lacks `since` or `expires_at` worse than a scan of all facts of a signature. So
statements that read those columns name their index.
"""

from __future__ import annotations

from collections.abc import Iterable

STORED, PAST = "authz_fact", "authz_past_fact"
_PREFERRED = ("a0", "a2", "a3", "a4", "a1")  # a1 last: it mostly has names of roles or relations, each with many facts
_PARTIAL = {STORED: ("a3", "a4"), PAST: ("a2", "a3", "a4")}  # columns whose index has no empty ids


def leading(known: Iterable[str]) -> str | None:
    """Return the column by which to look up facts, among those whose ids are known."""
    names = set(known)
    return next((each for each in _PREFERRED if each in names), None)


def hint(table: str, column: str | None) -> str:
    """Return ` INDEXED BY …`, to follow the table's name; "" for `a0` of stored facts, served by their primary key."""
    if column is None or (table, column) == (STORED, "a0"):
        return ""
    return f" INDEXED BY {table.removeprefix('authz_')}_{column}"


def condition(table: str, column: str | None, alias: str = "") -> str:
    """Return the condition of a partial index, which a statement must repeat to use it; "" if the index is complete."""
    return f"{alias}{column} <> ''" if column in _PARTIAL[table] else ""
