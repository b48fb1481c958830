"""Which words stand together without a space between them. This depends only on the kinds of the two words."""

from policy.language.format.words import NAMES
from policy.language.lexer import tokens

_NEVER_BEFORE = {"COMMA", "SEMI", "COLON", "RPAREN", "RBRACKET"}
_NEVER_AFTER = {"LPAREN", "LBRACKET"}


def _is_together(before: str, after: str) -> bool:
    if after in _NEVER_BEFORE or before in _NEVER_AFTER:
        return True
    if after in ("LPAREN", "LBRACE"):
        return before in NAMES  # `call(` and `User{`, but `if (` and `relations = {`
    if before == "LBRACE":
        return after not in NAMES  # `{"ann"` and `{}`, but `{ owner: User`
    return after == "RBRACE" and before not in NAMES


TOGETHER = frozenset((before, after) for before in tokens for after in tokens if _is_together(before, after))
