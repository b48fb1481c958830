"""Which index leads to facts by the columns that are known, for SQLite, which has no statistics to choose by.

To it, an index without `since` or `expires_at` looks dearer than all facts of a signature: look-ups that read those
columns say which index they mean.
"""

from __future__ import annotations

from collections.abc import Iterable

STORED, PAST = "fact", "past_fact"
_PREFERRED = ("a0", "a2", "a3", "a4", "a1")  # in the middle stand names mostly, which lead to most facts
_PARTIAL = {STORED: ("a3", "a4"), PAST: ("a2", "a3", "a4")}  # columns whose index has no empty ids


def leading(known: Iterable[str]) -> str | None:
    """The column to look facts up by, among those that are known."""
    names = set(known)
    return next((each for each in _PREFERRED if each in names), None)


def hint(table: str, column: str | None) -> str:
    """What follows the table's name; the key of stored facts leads with `a0` anyway."""
    return "" if column is None or (table, column) == (STORED, "a0") else f" INDEXED BY {table}_{column}"


def condition(table: str, column: str | None, alias: str = "") -> str:
    """What a statement must say for the index to be used; nothing where it has all facts."""
    return f"{alias}{column} <> ''" if column in _PARTIAL[table] else ""
