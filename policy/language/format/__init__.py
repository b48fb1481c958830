"""The formatter: one layout for every policy, with the same words and comments.

`words` splits a text into words, each with the comments before it. `statements` writes the words, statement by
statement. For a statement that does not fit on one line, `breaking` builds a `document`, which says where lines may
break.

All words, parentheses included, stay as they are and in their order, so the policy keeps its meaning. The only
exceptions: a comma before a closing `]` or `}` is written if and only if the line breaks there, a comma before the `{`
of a block is left out, and so is the `;` of an empty statement.
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
    """Return the policy in its one layout; raise `PolicyRejected` if the text does not parse."""
    _, tokens = parse_with_tokens(Source(text, filename))
    return formatted_tokens(text, tokens)


def formatted_tokens(text: str, tokens: list[Token]) -> str:
    """Return the same as `formatted`, for a text that is parsed already; `tokens` are its tokens."""
    with without_collections():
        return laid_out(words_of(text, tokens))


def says_the_same(before: str, after: str) -> bool:
    """Say whether two texts differ only in layout: they have equal trees, and the same comments in the same order.

    Return False if either text does not parse.
    """
    try:
        return _tree_and_comments(before) == _tree_and_comments(after)
    except PolicyRejected:
        return False


def _tree_and_comments(text: str) -> tuple[ast.Policy, list[str]]:
    policy, tokens = parse_with_tokens(Source(text))
    return policy, [comment.text for word in words_of(text, tokens) for comment in word.comments]
