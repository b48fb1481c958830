"""Check the syntax of a changed text by parsing only what has changed.

A policy is a sequence of statements, and whether a statement parses does not depend on the others. So if every piece of
a text is a policy, the whole is one too, wherever it was cut between two tokens. Pieces that stood in a policy before
are not parsed again.
"""

from __future__ import annotations

from collections.abc import Iterable

from policy.language.outline import CLOSING, OPENING
from policy.language.plumbing import parse
from policy.language.ply_types import Token
from policy.language.rejection import PolicyRejected
from policy.language.source import Source

_ENDS = frozenset({"SEMI", "RBRACE"})  # of a statement, outside of all brackets


def pieces_of(text: str, tokens: Iterable[Token]) -> frozenset[str]:
    """Cut a text, of which these are the tokens, after each statement.

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
    """Parse each; where one is refused, the whole may have been cut at a wrong place, and still be a policy."""
    try:
        for piece in pieces:
            parse(Source(piece))
    except PolicyRejected:
        return False
    return True
