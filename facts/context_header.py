"""How who asks learns of context facts that count for nothing: from a header of the answer, and from the log."""

import logging

from facts.accept import Unused
from facts.plain_lines import plain
from policy.endpoint import OFFSET, Request, Response

log = logging.getLogger("authz.request")

HEADER = "X-Unused-Context-Facts"


def answer(request: Request, body: object, unused: Unused, revision: int | None = None) -> Response:
    """The answer to a question, of which revision it is, and what of its context counted for nothing."""
    headers = {} if revision is None else {OFFSET: str(revision)}
    if unused:
        log.info("request %s: context facts %s", request.id, line_of(unused))
        headers[HEADER] = line_of(unused)
    return Response(body, headers=headers)


def line_of(unused: Unused) -> str:
    """All of it in one line of printable ASCII, whatever the names are made of."""
    named = [f"`{each.signature}`{each.advice}" for each in unused.kinds]
    return plain(f"not used in policy: {'; '.join([*named, *([f'and {unused.more} more'] if unused.more else [])])}")
