"""One layout for every policy: the same words, and every comment at its place.

`words` takes the words out of a text, with the comments before each; `statements` writes them down again, statement by
statement; one that does not fit on its line is made a `document` by `breaking`, which says where lines may break.

Nothing is written that the text does not say: words are kept as they stand, in their order, parentheses too. Only a
comma before a closing bracket comes and goes with the line break there, and a `;` after nothing is left out. So the
policy means the same, whatever its layout.
"""

from policy.language import ast
from policy.language.collector import without_collections
from policy.language.format.statements import laid_out
from policy.language.format.words import words_of
from policy.language.plumbing import parse_with_tokens
from policy.language.ply_types import Token
from policy.language.rejection import PolicyRejected
from policy.language.source import Source

__all__ = ["formatted", "formatted_tokens", "says_the_same"]


def formatted(text: str, filename: str = "") -> str:
    """Return the policy in its one layout; a text that is no policy raises PolicyRejected."""
    _, tokens = parse_with_tokens(Source(text, filename))
    return formatted_tokens(text, tokens)


def formatted_tokens(text: str, tokens: list[Token]) -> str:
    """The same of a text that was parsed already."""
    with without_collections():
        return laid_out(words_of(text, tokens))


def says_the_same(before: str, after: str) -> bool:
    """Whether a text is the policy but for its layout: the same tree, and the same comments in the same order."""
    try:
        return _said(before) == _said(after)
    except PolicyRejected:
        return False


def _said(text: str) -> tuple[ast.Policy, list[str]]:
    policy, tokens = parse_with_tokens(Source(text))
    return policy, [comment.text for word in words_of(text, tokens) for comment in word.comments]
