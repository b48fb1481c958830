"""The condition of a caveat as a tree: what its meaning in plain Python is worked out from.

It shares nothing with what makes rules of conditions.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True)
class Literal:
    """A string, number, truth or `null`."""

    value: str | int | float | bool | bytes | None


@dataclass(frozen=True)
class Identifier:
    name: str


@dataclass(frozen=True)
class Operation:
    """An operator with one, two or three sides: `!`, `-`, `&&`, `<`, `in`, `?`, `[]` …"""

    sign: str
    sides: tuple[Cel, ...]


@dataclass(frozen=True)
class FieldOf:
    base: Cel
    name: str


@dataclass(frozen=True)
class Called:
    """`function(arguments)`, or a method of `base`."""

    function: str
    arguments: tuple[Cel, ...]
    base: Cel | None = None


@dataclass(frozen=True)
class ListWritten:
    elements: tuple[Cel, ...]


@dataclass(frozen=True)
class MapWritten:
    entries: tuple[tuple[Cel, Cel], ...]


Cel: TypeAlias = Literal | Identifier | Operation | FieldOf | Called | ListWritten | MapWritten


class WordKind(Enum):
    NAME = "a name"
    NUMBER = "a number"
    TEXT = "a string"
    SIGN = "a sign"
    END = "the end"


_WORD = re.compile(
    r"""
    (?P<SPACE>[\s\ufeff]+|//[^\n]*)
  | (?P<TEXT>[rRbB]{0,2}(?:"{3}[\s\S]*?"{3}|'{3}[\s\S]*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
  | (?P<NUMBER>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?|\d+[uU]?)(?![A-Za-z_0-9])
  | (?P<NAME>[^\W\d]\w*)
  | (?P<SIGN>\|\||&&|==|!=|<=|>=|[{}()\[\]<>+\-/:*?!.,%])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Word:
    kind: WordKind
    text: str


class Reader:
    """Goes through the words of a condition."""

    def __init__(self, text: str):
        self.words: list[Word] = []
        at = 0
        while at < len(text):
            found = _WORD.match(text, at)
            assert found is not None, text[at:]
            if found.lastgroup != "SPACE":
                self.words.append(Word(WordKind[found.lastgroup or ""], found[0]))
            at = found.end()
        self.words.append(Word(WordKind.END, ""))

    @property
    def word(self) -> Word:
        return self.words[0]

    def take(self) -> Word:
        return self.words.pop(0)

    def is_sign(self, sign: str) -> bool:
        return self.word == Word(WordKind.SIGN, sign)

    def took(self, text: str) -> bool:
        """Whether the next word is this one; if so, it is taken."""
        is_it = self.word.kind in (WordKind.SIGN, WordKind.NAME) and self.word.text == text
        if is_it:
            self.take()
        return is_it

    def expect(self, sign: str) -> None:
        assert self.took(sign), (sign, self.words)

    def name(self) -> str:
        assert self.word.kind is WordKind.NAME, self.words
        return self.take().text


_LEVELS = (("||",), ("&&",), ("<", "<=", "==", ">=", ">", "!=", "in"), ("+", "-"), ("*", "/", "%"))
_CONSTANTS = {"true": True, "false": False, "null": None}


def tree_of(text: str) -> Cel:
    return condition_of(Reader(text))


def condition_of(read: Reader) -> Cel:
    """An expression, up to what does not continue it."""
    chosen = _binary(read, 0)
    if read.took("?"):
        yes = condition_of(read)
        read.expect(":")
        chosen = Operation("?", (chosen, yes, condition_of(read)))
    return chosen


def _binary(read: Reader, level: int) -> Cel:
    if level == len(_LEVELS):
        return _unary(read)
    left = _binary(read, level + 1)
    while read.word.kind in (WordKind.SIGN, WordKind.NAME) and read.word.text in _LEVELS[level]:
        sign = read.take().text
        left = Operation(sign, (left, _binary(read, level + 1)))
    return left


def _unary(read: Reader) -> Cel:
    for sign in ("!", "-"):
        if read.took(sign):
            inner = _unary(read)
            if sign == "-" and isinstance(inner, Literal) and type(inner.value) in (int, float):
                return Literal(-inner.value)  # type: ignore[operator]
            return Operation(sign, (inner,))
    return _member(read)


def _member(read: Reader) -> Cel:
    found = _primary(read)
    while True:
        if read.took("."):
            name = read.name()
            found = Called(name, _listed(read, ")"), found) if read.took("(") else FieldOf(found, name)
        elif read.took("["):
            index = condition_of(read)
            read.expect("]")
            found = Operation("[]", (found, index))
        else:
            return found


def _primary(read: Reader) -> Cel:
    word = read.word
    if word.kind is WordKind.TEXT:
        return Literal(_text(read))
    if word.kind is WordKind.NUMBER:
        return Literal(_number(read.take().text))
    if read.took("("):
        inner = condition_of(read)
        read.expect(")")
        return inner
    if read.took("["):
        return ListWritten(_listed(read, "]"))
    if read.took("{"):
        return MapWritten(_entries(read))
    read.took(".")  # names may begin at the root, where they are anyway
    name = read.name()
    if name in _CONSTANTS:
        return Literal(_CONSTANTS[name])
    if read.took("("):
        return Called(name, _listed(read, ")"), None)
    return Identifier(name)


def _listed(read: Reader, end: str) -> tuple[Cel, ...]:
    """Expressions with commas between, and what closes them."""
    found: list[Cel] = []
    while not read.is_sign(end):
        found.append(condition_of(read))
        if not read.took(","):
            break
    read.expect(end)
    return tuple(found)


def _entries(read: Reader) -> tuple[tuple[Cel, Cel], ...]:
    found: list[tuple[Cel, Cel]] = []
    while not read.is_sign("}"):
        key = condition_of(read)
        read.expect(":")
        found.append((key, condition_of(read)))
        if not read.took(","):
            break
    read.expect("}")
    return tuple(found)


def _number(written: str) -> int | float:
    text = written.rstrip("uU")
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", text):
        return int(text, 16)
    return int(text) if text.isdecimal() else float(text)


def _text(read: Reader) -> str | bytes:
    """The escapes are those of Python, but for three that are rare."""
    word = read.take()
    prefix = re.match(r"[rRbB]*", word.text)[0]  # type: ignore[index]
    body = word.text[len(prefix) :]
    if "r" not in prefix.lower() and re.search(r"\\[?`]", body):
        body = re.sub(r"\\([?`])", r"\1", body)
    value = ast.literal_eval(prefix + body)
    assert isinstance(value, str | bytes)
    return value
