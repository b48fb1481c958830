"""Context facts that the policy has no use for, and how the one who asks is told: in a header, and in the log."""

import logging
import re
from dataclasses import dataclass
from typing import NamedTuple

from rest_framework.request import Request
from rest_framework.response import Response

from policy.rules.program import Signature

log = logging.getLogger("authz.request")

HEADER = "X-Unused-Context-Facts"
MOST_TOLD = 10  # kinds of facts; of the others, how many there are
LONGEST = 1_000  # characters, of the header and of the line in the log

_NOT_PLAIN = re.compile(r"[^ -~]")


class Kind(NamedTuple):
    """Facts of one signature, and what may have been meant."""

    signature: Signature
    hint: str

    def __str__(self) -> str:
        return f"`{self.signature}` is not used in policy{self.advice}"

    @property
    def advice(self) -> str:
        return f" ({self.hint})" if self.hint else ""


@dataclass(frozen=True, slots=True)
class Unused:
    """The kinds of a question's context facts that count for nothing."""

    kinds: tuple[Kind, ...] = ()
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.kinds)

    @property
    def sentences(self) -> tuple[str, ...]:
        """For people."""
        told = tuple([f"the context fact {kind}" for kind in self.kinds])
        return (*told, f"{self.more} more kinds of context facts are not used in policy") if self.more else told

    @property
    def line(self) -> str:
        """All of it in one line of printable ASCII, whatever the names are made of."""
        told = [f"`{kind.signature}`{kind.advice}" for kind in self.kinds]
        return plain(f"not used in policy: {'; '.join([*told, *([f'and {self.more} more'] if self.more else [])])}")


ALL_USED = Unused()


def plain(text: str) -> str:
    """The text in printable ASCII, cut where it is too long."""
    escaped = _NOT_PLAIN.sub(lambda found: found[0].encode("unicode_escape").decode(), text[: LONGEST + 1])
    return escaped if len(escaped) <= LONGEST else f"{escaped[: LONGEST - 3]}..."


def answer(request: Request, body: object, unused: Unused) -> Response:
    """The answer to a question, and what of its context counted for nothing."""
    if not unused:
        return Response(body)
    request_id = request.request_id  # type: ignore[attr-defined]  # the middleware's, on the request inside of this one
    log.info("request %s: context facts %s", request_id, unused.line)
    return Response(body, headers={HEADER: unused.line})
