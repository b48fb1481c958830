"""The words of a policy, each with the comments before it.

A comment may stand between any two words of the text, but the formatter breaks lines only at some places. So a word
that belongs to the word before it (a comma, an operator, an opening bracket) moves in front of the comments between:

    reader(x) # who reads          reader(x) and  # who reads
    and writer(x);            ->   writer(x);

Then comments are left only before words that may begin a line: an operand, a closing bracket, a statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from policy.language.lexer import CONTEXTUAL
from policy.language.ply_types import Token

NAMES = frozenset({"NAME", *CONTEXTUAL.values()})  # kinds that can be names, and are names before `(`
END = "END"  # the kind of the word that marks the end of the text
# Kinds that always move in front of the comments before them.
_ALWAYS = frozenset({
    "COMMA", "AND", "OR", "IF", "IFF", "LBRACKET", "LBRACE", "COLON", "EQ", "COMPARE", "IN", "MATCHES",
    "MATCHES_EXACTLY", "ON",
})  # fmt: skip
_BEFORE_CONDITION = frozenset({"IF", "IFF", "AND", "OR", "NOT", "LPAREN"})
_MAY_FOLLOW_COMMA = frozenset({"RBRACKET", "RBRACE", "LBRACE"})  # LBRACE: `actor User extends Person, {`


class Comment(NamedTuple):
    text: str
    breaks: int  # line breaks before it; 0 if it stands on the line of the word before it


class Word(NamedTuple):
    kind: str
    text: str
    comments: tuple[Comment, ...]  # before it
    breaks: int  # line breaks before it, after the comments


class _Gap(NamedTuple):
    """What stands between two words."""

    comments: tuple[Comment, ...]
    breaks: int


_NEARBY = ("", " ")
_NOTHING = _Gap((), 0)


def words_of(text: str, tokens: Iterable[Token]) -> list[Word]:
    """Return the words of a text, without trailing commas; `tokens` are the tokens of the text.

    The last word is END. It has the comments after the last token.
    """
    words: list[Word] = []
    end, previous, carried = 0, END, _NOTHING
    for token in tokens:
        kind, start, value = token.type, token.lexpos, token.value
        between = text[end:start]
        gap = _NOTHING if between in _NEARBY else _gap(between)
        if carried is not _NOTHING:
            gap, carried = _joined(carried, gap), _NOTHING
        if previous == "COMMA" and kind in _MAY_FOLLOW_COMMA:
            words.pop()
        if gap is not _NOTHING and _belongs_before(kind, previous, gap):
            gap, carried = _NOTHING, gap if kind != "SEMI" else _without_free_lines(gap)
        words.append(Word(kind, value, *gap))
        end, previous = start + len(value), kind
    gap = _joined(carried, _gap(text[end:]))
    words.append(Word(END, "", *gap))
    return words


def pass_on(words: list[Word], at: int) -> None:
    """Give the comments and line breaks before the word at `at` to the next word; the caller leaves this word out."""
    word, following = words[at], words[at + 1]
    gap = _joined(_Gap(word.comments, word.breaks), _Gap(following.comments, following.breaks))
    words[at + 1] = following._replace(comments=gap.comments, breaks=gap.breaks)


def _gap(between: str) -> _Gap:
    if "#" not in between:
        return _Gap((), between.count("\n"))
    comments, breaks = [], 0
    for line in between.split("\n"):
        start = line.find("#")
        if start >= 0:
            comments.append(Comment(line[start:].rstrip(), breaks))
            breaks = 0
        breaks += 1
    return _Gap(tuple(comments), breaks - 1)


def _belongs_before(kind: str, previous: str, gap: _Gap) -> bool:
    """Say whether a word of this kind moves in front of the comments in the gap before it."""
    match kind:
        case "LPAREN":
            return previous in NAMES
        case "NOT":
            return previous not in _BEFORE_CONDITION  # `x not in [...]`
        case "SEMI":
            return all(not comment.breaks for comment in gap.comments)
    return kind in _ALWAYS


def _without_free_lines(gap: _Gap) -> _Gap:
    return _Gap(gap.comments, 1) if gap.comments else _NOTHING


def _joined(first: _Gap, second: _Gap) -> _Gap:
    """Return both gaps as one; the word that stood between them has moved or is left out."""
    if first is _NOTHING:
        return second
    comments, breaks = second
    if not comments:
        return _Gap(first.comments, max(first.breaks, breaks))
    own = comments[0].breaks
    if first.comments or own:
        comments = (comments[0]._replace(breaks=max(1, first.breaks, own)), *comments[1:])
    return _Gap(first.comments + comments, breaks)
