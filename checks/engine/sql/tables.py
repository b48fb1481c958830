"""The WITH clause: the tables that a statement reads by name, including the facts that the request brings."""

from __future__ import annotations

from checks.engine.rules.clauses import Slot
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.text import Text, joined
from policy.rules.program import Signature

INLINE = "inline_fact"
FACTS = Slot("facts")


def inline_table(dialect: Dialect, inline: frozenset[Signature]) -> list[Text]:
    """Return the table of the request's facts of these signatures, in a list that is empty if there are none."""
    if not inline:
        return []
    rows = dialect.rows((FACTS,), max(len(each.types) for each in inline))
    return [(f"{INLINE} AS MATERIALIZED (", *rows, ")")]


def with_tables(tables: list[Text]) -> Text:
    """Return the WITH clause of a SELECT that reads these tables; nothing if there are none."""
    return ("WITH RECURSIVE ", *joined(", ", tables), " ") if tables else ()
