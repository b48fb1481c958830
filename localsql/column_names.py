"""Checks of the caller's column, which goes into the SQL unchanged: it must be a name and nothing else."""

from __future__ import annotations

import re

from localsql.dialects import Dialect
from localsql.errors import ColumnRejected

MOST_PARTS = 4
LONGEST = 63  # bytes of one name, in the strictest database

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*", re.ASCII)
_QUOTED = {
    '"': re.compile(r'"((?:[^"\0]|"")+)"'),
    "`": re.compile(r"`((?:[^`\0]|``)+)`"),
}
# Words that, where a column is expected, are an expression by themselves, or end the expression.
_WORDS = (
    "all analyse analyze and any array as asc asymmetric authorization between binary both by case cast check "
    "collate column constraint create cross current_catalog current_date current_role current_schema "
    "current_time current_timestamp current_user default deferrable delete desc distinct div do else end "
    "except exists false fetch for foreign from full grant group having if ilike in index initially inner "
    "insert intersect interval into is isnull join key lateral leading left like limit localtime "
    "localtimestamp mod natural not notnull null offset on only or order outer overlaps placing primary "
    "references regexp returning right rlike row rowid rownum select session_user similar some sounds symmetric "
    "system_user table tablesample then to trailing true union unique update user using utc_date utc_time "
    "utc_timestamp values variadic when where window with xor"
)
_RESERVED = frozenset(_WORDS.split())


def check_column(text: object, dialect: Dialect, path: str = "column") -> str:
    """Return the column unchanged; refuse it if it is more than names with dots between them."""
    if not isinstance(text, str) or not text:
        raise ColumnRejected(path, "must be a text: the name of a column")
    parts = _parts(text, dialect)
    if parts is None or len(parts) > MOST_PARTS:
        raise ColumnRejected(_shown(text), 'must be a column\'s name, as `id`, `repos.id` or `"Repos".id`')
    if any(len(part.encode("utf-8", "replace")) > LONGEST for part in parts):
        raise ColumnRejected(_shown(text), f"must have names of at most {LONGEST} bytes")
    if len(parts) == 1 and text.lower() in _RESERVED:
        raise ColumnRejected(text, f"is a reserved word: quote it, or write `table.{text}`")
    return text


def output_name(text: object, path: str) -> str:
    if not isinstance(text, str) or not text:
        raise ColumnRejected(path, "must be a text: the name of a column")
    if any(ord(char) < 32 or 0xD800 <= ord(char) < 0xE000 or char == "\x7f" for char in text):
        raise ColumnRejected(path, "must have no control characters")
    if len(text.encode()) > LONGEST:
        raise ColumnRejected(_shown(text), f"must be at most {LONGEST} bytes long")
    return text


def _parts(text: str, dialect: Dialect) -> list[str] | None:
    """Return the names between the dots, without their quotes; None if the text is something else."""
    found: list[str] = []
    at = 0
    while True:
        name = _pattern(text[at : at + 1], dialect).match(text, at)
        if name is None:
            return None
        found.append(name[1].replace(text[at] * 2, text[at]) if name.re.groups else name[0])
        at = name.end()
        if at == len(text):
            return found
        if text[at] != "." or at + 1 == len(text):
            return None
        at += 1


def _pattern(first: str, dialect: Dialect) -> re.Pattern[str]:
    return _QUOTED[first] if first and first in dialect.quotes else _PLAIN


def _shown(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
