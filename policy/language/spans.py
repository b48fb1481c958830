"""Find where a production's symbols stand in the text, and note errors there.

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
    """Return the span from the start of `first`, a node's span, to the end of the token `p[last]`."""
    return Span(first.start, p.slice[last].lexpos + len(p[last]))


def refuse(p: Production, n: int, message: str, hint: str) -> None:
    p.lexer.notes.refuse(token_span(p, n), message, hint)


def enter(p: Production) -> None:
    """Note one more level of nesting, which the `not` or `(` on top of the parser's stack begins."""
    start = p.stack[-1].lexpos
    p.lexer.notes.enter(Span(start, start + len(p.stack[-1].value)))
