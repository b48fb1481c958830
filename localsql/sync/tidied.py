"""Removes comments and a semicolon at the end: people keep queries with them, and they are run without."""

from __future__ import annotations

import re

import sqlglot
from sqlglot.errors import SqlglotError

from localsql.binding_queries import LONGEST
from localsql.dialects import Dialect

# What may stand between two words. `/*! … */`, which MySQL runs, does not match, and is refused later.
_BLANK = re.compile(r"(?:\s|--[^\n]*+|(?>/\*(?!!|M!).*?\*/))*+", re.DOTALL)
_BLANK_IN_MYSQL = re.compile(r"(?:\s|--(?=\s|$)[^\n]*+|\#[^\n]*+|(?>/\*(?!!|M!).*?\*/))*+", re.DOTALL)


def tidied(query: str, dialect: Dialect) -> str:
    """Return the query without its comments and its last semicolon; unchanged if it cannot be read so."""
    try:
        words = sqlglot.tokenize(query, read=dialect.parser) if len(query) <= LONGEST else []
    except SqlglotError:
        return query
    blank = _BLANK_IN_MYSQL if dialect.parser == "mysql" else _BLANK
    parts, end = [], 0
    for word in words:
        between = query[end : word.start]
        if not blank.fullmatch(between):
            return query
        parts += [_blanked(between), query[word.start : word.end + 1]]
        end = word.end + 1
    if not words or not blank.fullmatch(query[end:]):
        return query
    if words[-1].token_type == sqlglot.TokenType.SEMICOLON:
        parts.pop()
    return "".join(parts).strip()


def _blanked(between: str) -> str:
    """Return white space in place of what separates two words, with as many line breaks."""
    return between if between.isspace() or not between else "\n" * between.count("\n") or " "
