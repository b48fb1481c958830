"""Check the syntax of a changed text by parsing only what has changed.

A policy is a sequence of statements, and whether a statement parses does not depend on the others. So if every piece of
a text parses, the whole text parses too, wherever it was cut between two tokens. A caller that keeps the pieces of an
earlier policy need not parse these again.
"""

from __future__ import annotations

from collections.abc import Iterable

from policy.language.outline import CLOSING, OPENING
from policy.language.plumbing import parse
from policy.language.ply_types import Token
from policy.language.rejection import PolicyRejected
from policy.language.source import Source

_ENDS = frozenset({"SEMI", "RBRACE"})  # these end a statement outside of all brackets


def pieces_of(text: str, tokens: Iterable[Token]) -> frozenset[str]:
    """Return the pieces of a text, which is cut after each statement; `tokens` are the tokens of the text.

    >>> text = "actor User {} allow(u: User, _, _) if is_ok(u);"
    >>> pieces_of(text, tokens_in(Source(text)))
    frozenset({'actor User {}', 'allow(u: User, _, _) if is_ok(u);'})
    """
    pieces: set[str] = set()
    start, depth = -1, 0
    for token in tokens:
        kind = token.type
        if start < 0:
            start = token.lexpos
        if kind in OPENING:
            depth += 1
        elif kind in CLOSING:
            depth -= 1
        if depth == 0 and kind in _ENDS:
            pieces.add(text[start : token.lexpos + 1])
            start = -1
    if start >= 0:
        pieces.add(text[start:])
    return frozenset(pieces)


def are_policies(pieces: Iterable[str]) -> bool:
    """Say whether every piece parses. If not, the whole text may still parse: it may have been cut in a wrong place."""
    try:
        for piece in pieces:
            parse(Source(piece))
    except PolicyRejected:
        return False
    return True
