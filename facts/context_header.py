"""Tell callers which context facts were ignored, in printable ASCII: in a header of the response, and in the log."""

import logging
import re

from facts.accept import Unused
from policy.endpoint import OFFSET, Request, Response

log = logging.getLogger("authz.request")

HEADER = "X-Unused-Context-Facts"
LONGEST = 1_000  # characters
_NOT_PRINTABLE = re.compile(r"[^ -~]")


def answer(request: Request, body: object, unused: Unused, revision: int | None = None) -> Response:
    """Return the response to a question, with headers for its revision and for the context facts that were ignored."""
    headers = {} if revision is None else {OFFSET: str(revision)}
    if unused:
        log.info("request %s: context facts %s", request.id, line_of(unused))
        headers[HEADER] = line_of(unused)
    return Response(body, headers=headers)


def line_of(unused: Unused) -> str:
    """Return the ignored context facts in one line of printable ASCII; other characters are escaped."""
    named = [f"`{each.signature}`{each.advice}" for each in unused.kinds]
    return printable(
        f"not used in policy: {'; '.join([*named, *([f'and {unused.more} more'] if unused.more else [])])}"
    )


def printable(text: str) -> str:
    """Return the text in printable ASCII, with other characters escaped, cut to `LONGEST` characters."""
    escaped = _NOT_PRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text[: LONGEST + 1])
    return escaped if len(escaped) <= LONGEST else f"{escaped[: LONGEST - 3]}..."
