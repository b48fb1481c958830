"""WITH: the tables that a statement reads by name, that of the facts which the request brings among them."""

from __future__ import annotations

from checks.engine.rules.clauses import Slot
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.text import Text, joined
from policy.rules.program import Signature

INLINE = "inline_fact"
FACTS = Slot("facts")


def inline_table(dialect: Dialect, inline: frozenset[Signature]) -> list[Text]:
    """The facts of these signatures that the request brings, as a table; none where it brings none."""
    if not inline:
        return []
    rows = dialect.rows((FACTS,), max(len(each.types) for each in inline))
    return [(f"{INLINE} AS MATERIALIZED (", *rows, ")")]


def with_tables(tables: list[Text]) -> Text:
    """What stands before a SELECT that reads these."""
    return ("WITH RECURSIVE ", *joined(", ", tables), " ") if tables else ()
