"""Texts as headers and logs can hold them, whatever the names in them are made of."""

import re

LONGEST = 1_000  # characters

_NOT_PLAIN = re.compile(r"[^ -~]")


def plain(text: str) -> str:
    """The text in printable ASCII, cut where it is too long."""
    escaped = _NOT_PLAIN.sub(lambda found: found[0].encode("unicode_escape").decode(), text[: LONGEST + 1])
    return escaped if len(escaped) <= LONGEST else f"{escaped[: LONGEST - 3]}..."
