"""Where a production's symbols stand in the text, and notes about them.

`p` is PLY's production: `p[n]` is the value of its n-th symbol, a node or the text of a token.
"""

from policy.language.ply_types import Production
from policy.language.source import Span


def token_span(p: Production, n: int) -> Span:
    start = p.slice[n].lexpos
    return Span(start, start + len(p[n]))


def tokens_span(p: Production, first: int, last: int) -> Span:
    return Span(p.slice[first].lexpos, p.slice[last].lexpos + len(p[last]))


def span_to(p: Production, first: Span, last: int) -> Span:
    """From a node's span to the end of a token."""
    return Span(first.start, p.slice[last].lexpos + len(p[last]))


def refuse(p: Production, n: int, message: str, hint: str) -> None:
    p.lexer.notes.refuse(token_span(p, n), message, hint)


def enter(p: Production) -> None:
    """One deeper, under the `not` or the parenthesis just read."""
    start = p.stack[-1].lexpos
    p.lexer.notes.enter(Span(start, start + len(p.stack[-1].value)))
