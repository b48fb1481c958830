"""Values -> SQL text. `literal` is the only place where a value becomes part of a statement.

The text must survive what client libraries do to SQL: some take a `:x`, `%s`, `?`, `$1` or `@x` inside quotes for a
placeholder, and a backslash means different things by configuration. So a value with other than plain characters is
written with escapes in their place.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from localsql.families import Family, is_possible

_PLAIN = re.compile(r"[A-Za-z0-9_.,/+=~ ()\[\]|<>-]*", re.ASCII)


def literal(value: str, family: Family, escape: Callable[[str], str]) -> str | None:
    """Return the value as a constant of the family; None if no column of the family can equal it.

    `escape` writes, in the dialect, a text that is not plain.
    """
    if not is_possible(value, family):
        return None
    match family:
        case Family.INTEGER | Family.NUMERIC:
            return value
        case Family.BOOLEAN:
            return value.upper()
        case Family.UUID:
            return f"CAST('{value}' AS uuid)"
    return text_literal(value, escape)


def text_literal(value: str, escape: Callable[[str], str]) -> str:
    # A tool that looks at the text without its quotes would take two hyphens for a comment.
    return f"'{value}'" if _PLAIN.fullmatch(value) and "--" not in value else escape(value)


def unicode_escapes(value: str) -> str:
    """Return PostgreSQL's E'' string, whose meaning no configuration changes."""
    return "E'" + "".join(char if _PLAIN.fullmatch(char) and char != "-" else _escape(char) for char in value) + "'"


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def hexadecimal(value: str) -> str:
    return f"X'{value.encode().hex()}'"
