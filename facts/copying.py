"""Write rows to a table of PostgreSQL by COPY."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from facts.models import COLUMNS, NewRow

KEY = ", ".join(("sig", *COLUMNS))
NAMES = f"{KEY}, since, expires_at"

_TABS = 1 + len(COLUMNS)
_LINE = "%d" + "\t%s" * len(COLUMNS) + "\t%d%.0s\n"  # the last value is an end, of which nothing is written


def copy(table: str, rows: Sequence[NewRow]) -> None:
    text = _written(rows)
    names = NAMES if text is None else f"{KEY}, since"
    with (
        connection.wrap_database_errors,
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table} ({names}) FROM STDIN") as target,
    ):
        if text is not None:
            target.write(text)
        else:
            for row in rows:
                target.write_row(row)


def _written(rows: Sequence[NewRow]) -> bytes | None:
    """Return rows in COPY's text format, faster than the driver does; None if a row has an end, or needs escaping."""
    if any(row[-1] is not None for row in rows):
        return None
    text = "".join([_LINE % row for row in rows])
    is_plain = text.count("\t") == _TABS * len(rows) and text.count("\n") == len(rows)
    return text.encode() if is_plain and "\\" not in text and "\r" not in text else None
