"""Look-ups of stored facts that may end, and of facts as of an earlier revision.

As of a revision, facts are looked up among those that are stored and those that are past:

    PostgreSQL   LATERAL (SELECT … FROM fact f0 WHERE … UNION ALL SELECT … FROM past_fact f0 WHERE …) f0
    SQLite       json_each((SELECT json_group_array(json_array(a0, a1)) FROM (… UNION ALL …))) f0

SQLite has no LATERAL, but an argument of a table function may mention the tables before it: the rows come as JSON
lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from checks.engine.plan.plan import Among, Condition, Same
from checks.engine.rules.clauses import Col, Operand, Slot
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.text import Text, joined
from facts.indexes import PAST, STORED, condition, hint, leading

REVISION = Slot("revision")
REVISION_TIME = Slot("moment")  # the time of that revision, in microseconds


def known_columns(conditions: Iterable[Condition], number: int) -> set[str]:
    """Return the columns of a source that the conditions restrict to one value or to several."""
    found: set[str] = set()
    for each in conditions:
        match each:
            case Same(left, right):
                for side, other in ((left, right), (right, left)):
                    if isinstance(side, Col) and side.source == number and not _is_of(other, number):
                        found.add(side.name)
            case Among(Col(source) as column, _) if source == number:
                found.add(column.name)
    return found


def _is_of(operand: Operand, number: int) -> bool:
    return isinstance(operand, Col) and operand.source == number


def has_not_ended(alias: str, time: Text) -> Text:
    name = f"{alias}.expires_at" if alias else "expires_at"
    return (f"({name} IS NULL OR {name} > ", *time, ")")


def stored_with_index(known: set[str], dialect: Dialect) -> Text:
    """Return the table of stored facts, with a hint, if needed, to use an index that leads with a known column."""
    column = leading(known)
    if not dialect.needs_hints or not hint(STORED, column):
        return (STORED,)
    held = condition(STORED, column)
    return (f"(SELECT * FROM {STORED}{hint(STORED, column)}{f' WHERE {held}' if held else ''})",)


def rows_as_of(columns: Sequence[str], alias: str, tests: Sequence[Text], known: set[str], dialect: Dialect) -> Text:
    """Return a SELECT of the facts as of the revision that pass the tests."""
    revision = dialect.number((REVISION,))
    begun: Text = (f"{alias}.since + 0 <= ", *revision)  # `+ 0`: not by the index that leads with `since`
    held = [*tests, begun, has_not_ended(alias, dialect.number((REVISION_TIME,)))]
    shown, column = ", ".join(columns), leading(known)
    stored = _arm(shown, STORED, alias, held, column, dialect)
    ended_later: Text = (f"{alias}.until > ", *dialect.unforeseen(revision))
    past = _arm(shown, PAST, alias, [*held, ended_later], column, dialect)
    return (*stored, " UNION ALL ", *past)


def _arm(shown: str, table: str, alias: str, tests: list[Text], column: str | None, dialect: Dialect) -> Text:
    needed = condition(table, column, f"{alias}.")
    named = f"{table} {alias}{hint(table, column) if dialect.needs_hints else ''}"
    return (f"SELECT {shown} FROM {named} WHERE ", *joined(" AND ", [*tests, *([(needed,)] if needed else [])]))
