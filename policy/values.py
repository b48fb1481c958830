"""Typed values, the arguments of every fact, rule and query; and facts in text form.

A value is a type name and an id, both text. Each value of a primitive type has a single canonical spelling, so that
values are equal if their texts are equal, in Python and in every database.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

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
        """Return the value in the notation of facts: `User:ann`, `User:"a b"`, `"admin"`; `str` returns Polar.

        Invisible characters are escaped, so that none disguises the fact, or controls a terminal.
        """
        if self.type in (INTEGER, BOOLEAN):
            return self.id
        is_plain = self.type != STRING and _PLAIN_ID.fullmatch(self.id)
        text = self.id if is_plain else orjson.dumps(self.id).decode()
        if not text.isprintable():
            text = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
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


MAX_VERSION = 2**31 - 1  # the largest number of a policy version that databases can store
LAST_REVISION = 2**63 - 1  # the same of a revision


def whole_number(text: str, most: int) -> int | None:
    """Parse untrusted decimal digits; return None unless they are a number from 0 to `most`.

    Python refuses to parse thousands of digits, so the significant ones are counted first.
    """
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdecimal()) or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None


# ---- Facts and fact patterns in text form: `has_role(User:ann, "admin", Repo:_)` ------------------------------------
# An argument is `Type:id`, `Type:"any id"` or `Type{"any id"}`, or a word or a quoted text without a type. `_` stands
# for any value. The caller decides which type an argument without a type has.

_NAME = re.compile(r"[^\s(){}:,\"]+")
_TYPE = re.compile(rf"{_NAME.pattern}(?:::[^\W\d][^\s(){{}}:,\"]*)*(?=\s*[:{{])")
_ID = re.compile(r"(?!:[^\W\d])[^\s(),\"]+")  # `Acme::Repo` is a type without an id, not the id `:Repo`
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_SPACE = re.compile(r"\s*")


class NotFactText(ValueError):
    """The text is not a fact; the message says what was expected, and where."""


class WrittenArgument(NamedTuple):
    type: str | None
    id: str | None  # None for `_`
    is_quoted: bool = False


class WrittenFact(NamedTuple):
    predicate: str
    args: tuple[WrittenArgument, ...]
    rest: str  # what follows the arguments


def parsed(text: str) -> WrittenFact:
    """Parse a fact: `p(User:ann, _)` -> the predicate `p` with the arguments (User, ann) and (None, None)."""
    reader = _Reader(text)
    predicate = reader.take(_NAME, "a predicate")
    reader.expect("(")
    args = [_argument(reader)]
    while reader.skips(","):
        args.append(_argument(reader))
    reader.expect(")")
    return WrittenFact(predicate, tuple(args), text[reader.at :].strip())


def _argument(reader: _Reader) -> WrittenArgument:
    if reader.sees('"'):
        return WrittenArgument(None, reader.quoted(), True)
    type_name = reader.takes(_TYPE)
    if type_name is None:
        return WrittenArgument(None, _unless_any(reader.take(_NAME, "an argument")))
    if reader.skips("{"):
        quoted = reader.quoted()
        reader.expect("}")
        return WrittenArgument(type_name, quoted, True)
    reader.expect(":")
    if reader.sees('"'):
        return WrittenArgument(type_name, reader.quoted(), True)
    return WrittenArgument(type_name, _unless_any(reader.take(_ID, "an id")))


def _unless_any(word: str) -> str | None:
    return None if word == "_" else word


class _Reader:
    """Reads a text token by token, and skips the whitespace between tokens."""

    def __init__(self, text: str):
        self.text = text
        self.at = 0

    def takes(self, token: re.Pattern[str]) -> str | None:
        """If the token comes next, consume and return it; else return None."""
        found = token.match(self.text, self._next)
        if found is None:
            return None
        self.at = found.end()
        return found[0]

    def take(self, token: re.Pattern[str], wanted: str) -> str:
        found = self.takes(token)
        return self._refuse(wanted) if found is None else found

    def sees(self, char: str) -> bool:
        return self.text.startswith(char, self._next)

    def skips(self, char: str) -> bool:
        """If the character comes next, consume it and return True; else return False."""
        if not self.sees(char):
            return False
        self.at = self._next + 1
        return True

    def expect(self, char: str) -> None:
        if not self.skips(char):
            self._refuse(f"`{char}`")

    def quoted(self) -> str:
        """Read a quoted text, with JSON escapes, and return it without quotes and escapes."""
        start = self.at
        try:
            return str(orjson.loads(self.take(_QUOTED, "a quoted id")))
        except orjson.JSONDecodeError:
            self.at = start
            self._refuse("a quoted id with JSON's escapes")

    @property
    def _next(self) -> int:
        found = _SPACE.match(self.text, self.at)
        return found.end() if found else self.at

    def _refuse(self, wanted: str) -> NoReturn:
        rest = self.text[self.at :].strip()
        raise NotFactText(f"expected {wanted} {f'before `{rest[:20]}`' if rest else 'at the end'}")
