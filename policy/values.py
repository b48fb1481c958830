"""Typed values: the atoms of every fact, rule and question.

A value is a type name and an id, both text. The primitive types have one canonical spelling each,
so that equality of values is equality of text, in Python and in every database.
"""

import re
from dataclasses import dataclass

STRING = "String"
INTEGER = "Integer"
BOOLEAN = "Boolean"
PRIMITIVES = (STRING, INTEGER, BOOLEAN)
ACTOR = "Actor"
RESOURCE = "Resource"
ABSTRACT = (ACTOR, RESOURCE)

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_MIN, _MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class Value:
    type: str
    id: str

    def __hash__(self) -> int:
        return hash(self.id)  # types are few: with them it takes twice the time, and finds no more apart

    def __str__(self) -> str:
        if self.type == STRING:
            return quoted(self.id)
        if self.type in (INTEGER, BOOLEAN):
            return self.id
        return f"{self.type}{{{quoted(self.id)}}}"


def quoted(text: str) -> str:
    """The text as a Polar string literal."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


def canonical_id(type_name: str, text: str) -> str:
    """The one spelling of a primitive's id; other types keep theirs. ValueError says what is wrong."""
    if type_name == INTEGER:
        if not _INTEGER.fullmatch(text):
            raise ValueError("an Integer is an optional sign and digits")
        number = int(text)
        if not _MIN <= number <= _MAX:
            raise ValueError("an Integer must fit in 64 bits")
        return str(number)
    if type_name == BOOLEAN and text not in ("true", "false"):
        raise ValueError('a Boolean is "true" or "false"')
    return text
