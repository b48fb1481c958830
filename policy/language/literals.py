"""Turn a literal as written into one canonical value, or note a problem."""

import re

from policy.language import ast
from policy.language.notes import Notes, shown
from policy.language.source import Span
from policy.values import BOOLEAN, INTEGER, STRING, Value, canonical_id

MAX_BYTES = 512
_ESCAPE = re.compile(r"\\([\s\S])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


def text_of(written: str) -> str:
    """Return the text that a string literal stands for; `written` includes the quotes."""
    if "\\" not in written:
        return written[1:-1]
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), written[1:-1])


def string(notes: Notes, written: str, span: Span, what: str = "a string") -> ast.Literal:
    value = notes.values.get(written)
    if value is None:
        value = Value(STRING, text_of(written))
        if is_sound_id(notes, value.id, span, what):
            notes.values[written] = value
    return ast.Literal(value, span)


def integer(notes: Notes, written: str, span: Span) -> ast.Literal:
    try:
        return ast.Literal(Value(INTEGER, canonical_id(INTEGER, written)), span)
    except ValueError:
        notes.refuse(span, f"{shown(written)} does not fit in 64 bits", "the largest Integer is 9223372036854775807")
        return ast.Literal(Value(INTEGER, "0"), span)


def boolean(written: str, span: Span) -> ast.Literal:
    return ast.Literal(Value(BOOLEAN, written), span)


def entity(notes: Notes, type_name: ast.Name, key: ast.Literal, span: Span) -> ast.Literal:
    """Return the literal for `User{"alice"}`. `Integer{3}`, `Integer{"3"}` and `3` become equal literals."""
    try:
        value = Value(type_name.text, canonical_id(type_name.text, key.value.id))
    except ValueError as mistake:
        notes.refuse(key.span, str(mistake))
        value = key.value
    return ast.Literal(value, span, type_name.span)


def is_sound_id(notes: Notes, text: str, span: Span, what: str) -> bool:
    """Say whether facts can hold the text. If not, note a problem, which calls the text `what`."""
    if not text:
        notes.refuse(span, f"{what} cannot be empty", "for any value, use a variable or `_`")
    elif text == "*":
        notes.refuse(span, f"{what} cannot be `*`", "`*` stands for any value in answers; use a variable or `_`")
    elif "\0" in text:
        notes.refuse(span, f"{what} cannot hold the character NUL")
    elif len(text) > MAX_BYTES // 4 and len(text.encode()) > MAX_BYTES:
        notes.refuse(span, f"{what} cannot be longer than {MAX_BYTES} bytes")
    else:
        return True
    return False
