"""How columns of a type are compared: SQL types in families, and which values a column of a family can have."""

from __future__ import annotations

import re
from enum import Enum

from policy.values import BOOLEAN


class Family(Enum):
    INTEGER = "integer"
    NUMERIC = "numeric"
    BOOLEAN = "boolean"
    UUID = "uuid"
    TEXT = "text"
    UNKNOWN = "unknown"  # nothing is said of the SQL type: compared as text, whatever it is


_SQL_TYPE = re.compile(
    r"[A-Za-z_][A-Za-z0-9_ ]*(\.[A-Za-z_][A-Za-z0-9_]*)?(\([0-9 ,]{1,12}\))?( [A-Za-z ]+)?(\[\])?", re.ASCII
)
_INTEGERS = re.compile(r"(tiny|small|medium|big)?int(eger)?|int[248]|(small|big)?serial[248]?", re.ASCII)
_TEXTS = re.compile(
    r"(tiny|medium|long)?text|(var|n|nvar)?char(acter)?2?|character varying|national char\w*|string|clob|name",
    re.ASCII,
)
_NUMERICS = ("numeric", "decimal", "dec", "number")
_BOOLEANS = ("boolean", "bool")
_CANONICAL = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", re.ASCII)
_DIGITS = 38  # of the widest numeric type that all databases have


def is_sql_type(text: str) -> bool:
    return len(text) <= 100 and _SQL_TYPE.fullmatch(text) is not None


def family_of(sql_type: str) -> Family:
    """Types that are not known here are compared as text: that is never wrong, and never an error when it runs."""
    name = re.sub(r"\(.*?\)", "", sql_type.lower()).strip()
    if _INTEGERS.fullmatch(name):
        return Family.INTEGER
    if _TEXTS.fullmatch(name):
        return Family.TEXT
    if name in _NUMERICS:
        return Family.NUMERIC
    if name in _BOOLEANS:
        return Family.BOOLEAN
    return Family.UUID if name == "uuid" else Family.UNKNOWN


def default_family(type_name: str) -> Family:
    return Family.BOOLEAN if type_name == BOOLEAN else Family.UNKNOWN


def is_possible(value: str, family: Family) -> bool:
    """Whether a column of the family can hold the value. The empty id is no fact's: nothing equals it."""
    if not value or "\0" in value:
        return False
    match family:
        case Family.INTEGER:
            return _CANONICAL.fullmatch(value) is not None and len(value) < 21 and -(2**63) <= int(value) < 2**63
        case Family.NUMERIC:
            return _CANONICAL.fullmatch(value) is not None and len(value) <= _DIGITS
        case Family.BOOLEAN:
            return value in ("true", "false")
        case Family.UUID:
            return _UUID.fullmatch(value) is not None
    return True
