"""What stands around a statement: the tables that it reads by name, and the page that it answers."""

from __future__ import annotations

from typing import NamedTuple

from checks.engine.rules.clauses import Slot
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.text import Text, joined
from policy.rules.program import Signature

# ---- tables -------------------------------------------------------------------------------------------------------
# The WITH clause: the tables that a statement reads by name, including the facts that the request brings.

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


# ---- Rows of one column -> a page of them, in order, or how many there are ----------------------------------------
# <rows>  ->  SELECT q.o0 FROM (<rows>) q WHERE q.o0 > :after GROUP BY q.o0 ORDER BY q.o0 NULLS FIRST LIMIT :limit

AFTER = Slot("after")
BEFORE = Slot("before")
CONTAINED = Slot("contained")
LIMIT = Slot("limit")


class Window(NamedTuple):
    """Which rows of a one-column answer are read, in order.

    `has_after`: those after an id; `has_before`: the last ones before an id; `has_text`: only those that contain a
    text. `is_counted`: instead of rows, how many there are, and how many of them come before an id.
    """

    has_after: bool = False
    has_before: bool = False
    has_text: bool = False
    is_counted: bool = False


def seen_through(window: Window, dialect: Dialect, rows: Text) -> Text:
    """Return a SELECT of a page of the distinct rows, or of how many there are.

    GROUP BY makes the rows distinct: the sort that puts them in order finds equal ones, too.
    """
    column = dialect.bytewise(("q.o0",))
    tests: list[Text] = []
    if window.has_text:
        tests.append(("(q.o0 IS NULL OR ", *dialect.place_of(CONTAINED, "q.o0"), " > 0)"))
    if window.has_after:
        tests.append((*column, " > ", AFTER))
    if window.has_before and not window.is_counted:
        tests.append((*column, " < ", BEFORE))
    where: Text = (" WHERE ", *joined(" AND ", tests)) if tests else ()
    found: Text = ("SELECT q.o0 FROM (", *rows, ") q", *where, " GROUP BY q.o0")
    if window.is_counted:
        before: Text = ("COUNT(CASE WHEN ", *column, " < ", BEFORE, " THEN 1 END)") if window.has_before else ("0",)
        return ("SELECT COUNT(q.o0) AS o0, ", *before, " AS o1 FROM (", *found, ") q")
    order = " DESC LIMIT " if window.has_before else " NULLS FIRST LIMIT "
    return (*found, " ORDER BY ", *column, order, LIMIT)
