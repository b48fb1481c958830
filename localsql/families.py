"""Families of SQL types: how columns are compared, and which values a column of each family can have."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal
from enum import Enum

from localsql.errors import OtherSpelling
from policy.values import BOOLEAN


class Family(Enum):
    INTEGER = "integer"
    NUMERIC = "numeric"
    BOOLEAN = "boolean"
    UUID = "uuid"
    TEXT = "text"
    UNKNOWN = "unknown"  # the SQL type is not said, or not known here: compared as text


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


def is_sql_type(text: str) -> bool:
    return len(text) <= 100 and _SQL_TYPE.fullmatch(text) is not None


def family_of(sql_type: str) -> Family:
    """Return the family of an SQL type. Unknown ones are compared as text: that is never wrong, and never fails."""
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


# ---- values ------------------------------------------------------------------------------------------------


def is_possible(value: str, family: Family) -> bool:
    """Say whether a column of the family can hold the value. No fact has the empty id, so nothing equals it.

    An id is the text that a column shows. If the database would take the value for another id (`007` in a column of
    numbers, a uuid in capitals), `OtherSpelling` is raised: to policies the two are different, to the column they are
    not.
    """
    if not value or "\0" in value:
        return False
    if family not in _READERS:
        return True
    shown = _READERS[family](value.strip(_SPACE))
    if shown is not None and shown != value:
        raise OtherSpelling(value, shown, family.value)
    return shown is not None


def _integer(text: str) -> str | None:
    number = _number(text)
    if number is None or number != number.to_integral_value():
        return None
    return str(int(number)) if -(2**63) <= number < 2**63 else None


def _numeric(text: str) -> str | None:
    number = _number(text)
    if number is None:
        return None
    shown = f"{number.normalize(_EXACT):f}"
    return shown if len(shown.strip("-").replace(".", "")) <= _DIGITS else None


def _number(text: str) -> Decimal | None:
    """Read a number as databases do; None if the text is none, or longer than any that they can hold."""
    if len(text) > _LONGEST:
        return None
    plain = text.replace("_", "")
    if _BASED.fullmatch(plain):
        return Decimal(int(plain, 0))
    return _EXACT.create_decimal(plain) or Decimal(0) if _DECIMAL.fullmatch(plain) else None  # there is no -0


def _boolean(text: str) -> str | None:
    word = text.lower()
    return next((shown for shown, words in _TRUTHS.items() if word in words), None)


def _uuid(text: str) -> str | None:
    digits = text.removeprefix("{").removesuffix("}").replace("-", "").lower()
    if not _HEXADECIMAL.fullmatch(digits):
        return None
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_READERS: dict[Family, Callable[[str], str | None]] = {
    Family.INTEGER: _integer,
    Family.NUMERIC: _numeric,
    Family.BOOLEAN: _boolean,
    Family.UUID: _uuid,
}
_SPACE = " \t\n\r\f\v"
_LONGEST = 60  # characters of a number, beyond which it is not looked at: canonical ones have fewer
_DIGITS = 38  # of the widest numeric type that all databases have
_EXACT = Context(prec=200)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?", re.ASCII)
_BASED = re.compile(r"[+-]?0([xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)", re.ASCII)
_HEXADECIMAL = re.compile(r"[0-9a-f]{32}", re.ASCII)
_TRUTHS = {
    "true": {"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"},
    "false": {"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"},
}
