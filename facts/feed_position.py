"""The position of a reader in the feed of changes: after a revision, or inside a revision that is sent in parts.

As text, the first is the revision's number, and the second a token that contains all it takes to go on.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import orjson

from facts.models import COLUMNS
from policy.errors import MalformedRequest

MOST = 10_000  # facts of an answer
LARGEST = 2**63 - 1  # what databases number revisions with
_TOKEN = re.compile(r"([0-9]{1,19})\.([0-9A-Za-z_-]{8,32768})", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)

Entry = tuple[int, int, tuple[str, ...]]  # 0 for what was inserted and 1 for what was deleted, sig, ids


@dataclass(frozen=True, slots=True)
class Inside:
    """Between two parts of a revision, which all have the same size."""

    is_state: bool  # the parts are of all facts as of the revision, not of what the revision changed
    part: int  # the next part, from 1
    parts: int
    size: int
    asked: str  # for which facts, as `digest_of` has it
    last: Entry  # of the part before


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """After this revision, or inside of it."""

    revision: int
    inside: Inside | None = None

    @property
    def text(self) -> int | str:
        """Return the position as the member `next` of an answer has it."""
        if self.inside is None:
            return self.revision
        on = self.inside
        token = orjson.dumps([int(on.is_state), on.part, on.parts, on.size, on.asked, *on.last[:2], on.last[2]])
        return f"{self.revision}.{base64.urlsafe_b64encode(token).decode().rstrip('=')}"


def digest_of(predicates: Iterable[str]) -> str:
    """Return a short hash of a filter, by which a token is bound to the filter that it was made for."""
    return sha256(orjson.dumps(sorted(predicates))).hexdigest()[:12]


def feed_position_from_text(text: str) -> FeedPosition:
    """Parse and check the parameter `after`, which comes from the caller."""
    if _NUMBER.fullmatch(text) and int(text) <= LARGEST:
        return FeedPosition(int(text))
    found = _TOKEN.fullmatch(text)
    inside = _inside(found[2]) if found else None
    if found is None or inside is None or int(found[1]) > LARGEST:
        raise MalformedRequest("after", "must be the number of a revision, or what `next` was before")
    return FeedPosition(int(found[1]), inside)


def _inside(encoded: str) -> Inside | None:
    try:
        raw = orjson.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (binascii.Error, ValueError):
        return None
    match raw:
        case [0 | 1 as state, int(part), int(parts), int(size), str(asked), 0 | 1 as gone, int(sig), list(ids)]:
            numbers_fit = part > 1 and parts > 0 and 1 <= size <= MOST and max(part, parts, abs(sig)) < 2**31
            if numbers_fit and len(ids) == len(COLUMNS) and all(_is_text(each) for each in ids):
                return Inside(bool(state), part, parts, size, asked, (int(gone), sig, tuple(ids)))
    return None


def _is_text(raw: object) -> bool:
    return isinstance(raw, str) and "\0" not in raw
