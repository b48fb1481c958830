"""Make texts fit for headers and logs."""

import re

LONGEST = 1_000  # characters

_NOT_PLAIN = re.compile(r"[^ -~]")


def plain(text: str) -> str:
    """Return the text in printable ASCII, with other characters escaped, cut to `LONGEST` characters."""
    escaped = _NOT_PLAIN.sub(lambda found: found[0].encode("unicode_escape").decode(), text[: LONGEST + 1])
    return escaped if len(escaped) <= LONGEST else f"{escaped[: LONGEST - 3]}..."
