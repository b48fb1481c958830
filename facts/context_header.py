"""How who asks learns of context facts that count for nothing: from a header of the answer, and from the log."""

import logging

from facts.accept import Unused
from facts.plain_lines import plain
from policy.endpoint import Request, Response

log = logging.getLogger("authz.request")

HEADER = "X-Unused-Context-Facts"


def answer(request: Request, body: object, unused: Unused) -> Response:
    """The answer to a question, and what of its context counted for nothing."""
    if not unused:
        return Response(body)
    log.info("request %s: context facts %s", request.id, line_of(unused))
    return Response(body, headers={HEADER: line_of(unused)})


def line_of(unused: Unused) -> str:
    """All of it in one line of printable ASCII, whatever the names are made of."""
    named = [f"`{each.signature}`{each.advice}" for each in unused.kinds]
    return plain(f"not used in policy: {'; '.join([*named, *([f'and {unused.more} more'] if unused.more else [])])}")
