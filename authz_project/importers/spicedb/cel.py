"""The condition of a caveat: an expression of the Common Expression Language."""

import ast
import re

from authz_project.importers.spicedb.misread import Misread
from authz_project.importers.spicedb.reader import Reader
from authz_project.importers.spicedb.syntax import (
    Called,
    Cel,
    FieldOf,
    Identifier,
    ListWritten,
    Literal,
    MapWritten,
    Operation,
)  # fmt: skip
from authz_project.importers.spicedb.words import Kind

_LEVELS = (("||",), ("&&",), ("<", "<=", "==", ">=", ">", "!=", "in"), ("+", "-"), ("*", "/", "%"))
_CONSTANTS = {"true": True, "false": False, "null": None}


def condition_of(read: Reader) -> Cel:
    """An expression, up to what does not continue it."""
    first = read.word
    read.deeper()
    chosen = _binary(read, 0)
    if read.took("?"):
        yes = condition_of(read)
        read.expect(":", "between the two values")
        chosen = Operation("?", (chosen, yes, condition_of(read)), read.place(first))
    read.higher()
    return chosen


def _binary(read: Reader, level: int) -> Cel:
    if level == len(_LEVELS):
        return _unary(read)
    first = read.word
    left = _binary(read, level + 1)
    while read.word.kind in (Kind.SIGN, Kind.NAME) and read.word.text in _LEVELS[level]:
        sign = read.take().text
        left = Operation(sign, (left, _binary(read, level + 1)), read.place(first))
    return left


def _unary(read: Reader) -> Cel:
    first = read.word
    for sign in ("!", "-"):
        if read.took(sign):
            read.deeper()
            inner = _unary(read)
            read.higher()
            if sign == "-" and isinstance(inner, Literal) and type(inner.value) in (int, float):
                return Literal(-inner.value, read.place(first))  # type: ignore[operator]
            return Operation(sign, (inner,), read.place(first))
    return _member(read)


def _member(read: Reader) -> Cel:
    first = read.word
    found = _primary(read)
    while True:
        if read.took("."):
            name = read.name("the name of a field or function").text
            if read.took("("):
                found = Called(name, _listed(read, ")"), found, read.place(first))
            else:
                found = FieldOf(found, name, read.place(first))
        elif read.took("["):
            index = condition_of(read)
            read.expect("]", "behind the index")
            found = Operation("[]", (found, index), read.place(first))
        else:
            return found


def _primary(read: Reader) -> Cel:
    word = read.word
    if word.kind is Kind.TEXT:
        return Literal(_text(read), read.place(word))
    if word.kind is Kind.NUMBER:
        return Literal(_number(read.take().text), read.place(word))
    if read.took("("):
        inner = condition_of(read)
        read.expect(")", "that closes the parenthesis")
        return inner
    if read.took("["):
        return ListWritten(_listed(read, "]"), read.place(word))
    if read.took("{"):
        return MapWritten(_entries(read), read.place(word))
    read.took(".")  # names may begin at the root, where they are anyway
    name = read.name("a condition").text
    if name in _CONSTANTS:
        return Literal(_CONSTANTS[name], read.place(word))
    if read.took("("):
        return Called(name, _listed(read, ")"), None, read.place(word))
    return Identifier(name, read.place(word))


def _listed(read: Reader, end: str) -> tuple[Cel, ...]:
    """Expressions with commas between, and what closes them."""
    found: list[Cel] = []
    while not read.is_sign(end):
        found.append(condition_of(read))
        if not read.took(","):
            break
    read.expect(end, "that closes the list")
    return tuple(found)


def _entries(read: Reader) -> tuple[tuple[Cel, Cel], ...]:
    found: list[tuple[Cel, Cel]] = []
    while not read.is_sign("}"):
        key = condition_of(read)
        read.expect(":", "between key and value")
        found.append((key, condition_of(read)))
        if not read.took(","):
            break
    read.expect("}", "that closes the map")
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
    try:
        value = ast.literal_eval(prefix + body)
    except (SyntaxError, ValueError):
        raise Misread(f"{word.shown} is no string that can be read", read.place(word)) from None
    assert isinstance(value, str | bytes)
    return value
