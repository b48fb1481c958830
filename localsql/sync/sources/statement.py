"""A pattern's query as the statement that is run: ids as texts in the dialect's normal form, and in order of bytes."""

from __future__ import annotations

from localsql.dialects import Dialect, Typed
from localsql.families import Family
from localsql.sync.config import Pattern, SqlQuery


def reading(pattern: Pattern, dialect: Dialect, in_order: bool, collated: str = "") -> str:
    """Return the statement; `collated` follows each column of ids, for databases that do not sort texts by bytes."""
    asked = pattern.asked
    assert isinstance(asked, SqlQuery), "a database of tables is asked by SQL"
    names = [f"c{index}" for index in range(max(len(pattern.key.columns), 1))]
    families = [asked.families[index] for index in pattern.key.columns] or [Family.UNKNOWN]
    shown = [
        f"({dialect.text(Typed(f'__q.{name}', family or Family.UNKNOWN))}){collated} AS {name}"
        for name, family in zip(names, families)
    ]
    order = f"\nORDER BY {', '.join(str(place) for place in range(1, len(names) + 1))}" if in_order else ""
    return f"WITH __q({', '.join(names)}) AS (\n{asked.text}\n)\nSELECT {', '.join(shown)} FROM __q{order}"
