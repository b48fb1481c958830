"""Policy text -> lines of HTML, with a class for each kind of word. Any text will do: it need not be a policy."""

import re
from collections.abc import Iterator

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from policy.language.lexer import CONTEXTUAL, NAME, RESERVED

_WORDS = "|".join(map(re.escape, sorted(RESERVED, key=len, reverse=True)))
_TOKEN = re.compile(
    rf"""
      (?P<comment>  \#[^\n]* )
    | (?P<string>   "(?:[^"\\\n]|\\[\s\S])*+"? )
    | (?P<constant> @{NAME} )
    | (?P<number>   (?<!\w)[+-]?[0-9]+ )
    | (?P<name>     matches!(?!=) | {NAME} )
    """,
    re.VERBOSE,
)
# A word that means something by position: `resource Repo {`, `global "admin"`, `roles = [`; not `allow(actor, …`.
_OPENS = re.compile(rf"""\s*\{{ | \s+(?:"|(?!(?:{_WORDS})\b){NAME})""", re.VERBOSE)
_IS_SET = re.compile(r"\s*=")
_IS_CALLED = re.compile(r"\s*\(")
_LISTS = ("roles", "permissions", "relations")


def highlighted_lines(text: str) -> list[SafeString]:
    """Return the HTML of each line of the text, without the line ends."""
    lines: list[list[str]] = [[]]
    for kind, piece in _pieces(text):
        first, *others = piece.split("\n")
        lines[-1].append(_span(kind, first))
        lines.extend([_span(kind, other)] for other in others)
    if text.endswith("\n"):
        lines.pop()
    return [mark_safe("".join(line)) for line in lines]  # noqa: S308  every piece is escaped


def marked_line(text: str, start: int, end: int) -> SafeString:
    """Return a line as HTML, marked from `start` to `end`. It is cut before it is escaped: no `&lt;` is split."""
    pieces = []
    offset = 0
    for kind, piece in _pieces(text):
        for left, right, is_marked in _cut(piece, start - offset, end - offset):
            span = _span(kind, piece[left:right])
            pieces.append(f"<mark>{span}</mark>" if is_marked else span)
        offset += len(piece)
    return mark_safe("".join(pieces))  # noqa: S308  every piece is escaped


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the whole text in pieces, each after its CSS class; the class is empty for plain text."""
    end = 0
    for found in _TOKEN.finditer(text):
        if found.start() > end:
            yield "", text[end : found.start()]
        yield _kind(found), found[0]
        end = found.end()
    if end < len(text):
        yield "", text[end:]


def _kind(found: re.Match) -> str:
    if found.lastgroup != "name":
        return found.lastgroup or ""
    word, text, end = found[0], found.string, found.end()
    if word in RESERVED or (word in CONTEXTUAL and _OPENS.match(text, end)):
        return "keyword"
    if word in _LISTS and _IS_SET.match(text, end):
        return "keyword"
    if word[0].isupper():
        return "type"
    return "call" if _IS_CALLED.match(text, end) else ""


def _cut(piece: str, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Return the bounds of the parts before, inside and after a range, without empty parts; True for inside."""
    left, right = max(0, min(start, len(piece))), max(0, min(end, len(piece)))
    parts = ((0, left, False), (left, right, True), (right, len(piece), False))
    return ((first, last, is_marked) for first, last, is_marked in parts if first < last)


def _span(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text)}</span>' if kind and text else escape(text)
