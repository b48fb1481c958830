"""Typed values: the arguments of every fact, rule and query.

A value is a type name and an id, both text. Each value of a primitive type has a single canonical spelling, so that
values are equal if their texts are equal, in Python and in every database.
"""

import re
from dataclasses import dataclass

import orjson

STRING = "String"
INTEGER = "Integer"
BOOLEAN = "Boolean"
PRIMITIVES = (STRING, INTEGER, BOOLEAN)
ACTOR = "Actor"
RESOURCE = "Resource"
ABSTRACT = (ACTOR, RESOURCE)

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/-]*")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_MIN, _MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class Value:
    type: str
    id: str

    def __hash__(self) -> int:
        return hash(self.id)  # there are few types: hashing them too doubles the time, and tells few more values apart

    def __str__(self) -> str:
        if self.type == STRING:
            return quoted(self.id)
        if self.type in (INTEGER, BOOLEAN):
            return self.id
        return f"{self.type}{{{quoted(self.id)}}}"

    @property
    def noted(self) -> str:
        """Return the value in the notation of facts: `User:ann`, `User:"a b"`, `"admin"`; `str` returns Polar."""
        if self.type in (INTEGER, BOOLEAN):
            return self.id
        is_plain = self.type != STRING and _PLAIN_ID.fullmatch(self.id)
        text = self.id if is_plain else orjson.dumps(self.id).decode()
        return text if self.type == STRING else f"{self.type}:{text}"


def quoted(text: str) -> str:
    """Format a text as a Polar string literal."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


def canonical_id(type_name: str, text: str) -> str:
    """Return a primitive's id in its canonical spelling, or raise `ValueError`; other types' ids are unchanged.

    `canonical_id("Integer", "+07")` -> `"7"`.
    """
    if type_name == INTEGER:
        if not _INTEGER.fullmatch(text):
            raise ValueError("an Integer must be digits with an optional sign")
        number = int(text)
        if not _MIN <= number <= _MAX:
            raise ValueError("an Integer must fit in 64 bits")
        return str(number)
    if type_name == BOOLEAN and text not in ("true", "false"):
        raise ValueError("a Boolean must be `true` or `false`")
    return text


def whole_number(text: str, most: int) -> int | None:
    """Parse untrusted decimal digits; return None unless they are a number from 0 to `most`.

    Python refuses to parse thousands of digits, so the significant ones are counted first.
    """
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdecimal()) or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None
