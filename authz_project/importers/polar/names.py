"""Names that Polar can say. Roles and permissions are texts, which can be anything; the rest are words."""

from __future__ import annotations

import re

from policy.values import ABSTRACT, PRIMITIVES

_RESERVED = {
    "if", "iff", "and", "or", "not", "in", "on", "matches", "true", "false", "cut", "debug", "print", "forall", "of",
    "_",
}  # fmt: skip
PREDICATES = {
    "allow", "has_role", "has_permission", "has_relation", "has_group", "is_public", "has_role_if", "has_relation_if",
    "is_public_if", "parameter", "value_of", "context", "fails",
}  # fmt: skip
HELD_VARIABLES = {"actor", "resource", "when", "role", "permission", "global"}  # what rules call something else
USERSET = "userset"
_NOT_IN_WORDS = re.compile(r"[^0-9A-Za-z_\u0080-\U0010ffff]")


def word(name: str) -> str:
    """Return the name as a word: what Polar cannot say becomes `_`."""
    text = _NOT_IN_WORDS.sub("_", name)
    if not text or text[0].isdigit():
        text = f"_{text}"
    return f"{text}_" if text in _RESERVED else text


def type_word(name: str) -> str:
    text = word(name)
    return f"{text}_" if text in (*PRIMITIVES, *ABSTRACT) else text


def unused(name: str, taken: set[str]) -> str:
    """Return the name, or one like it that is free; from then on it is taken."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def unused_start(text: str, names: set[str]) -> str:
    """Return the text, or one like it that none of the names begins with."""
    while any(name.startswith(text) for name in names):
        text += "_"
    return text


def variable(name: str, *, besides: frozenset[str] | set[str] = frozenset()) -> str:
    """Return a variable that is called as something else is."""
    text = word(name)
    while text in HELD_VARIABLES or text in besides:
        text += "_"
    return text
