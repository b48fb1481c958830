"""Review cursors: each stands after the lines that were shown. The next page begins there, so addresses have it.

    ["Repo","read","User",0,0,"repo-17","ann","read",[0,100,0],[7,1763856000000000]]

Kinds of access come in order. Within a kind one column leads (resources, or actors), and the other follows. What was
"now" on the first page stays so on the pages that continue it: the last two numbers are its revision and its time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import orjson

from checks.workbench.access_kinds import AccessKind
from policy.errors import MalformedRequest
from policy.moments import LAST_REVISION

COUNTED = ("has", "gained", "lost")  # states of lines, in the order in which an address has their numbers
_MOST = 10**12
RESOURCES, ACTORS, EACH = 0, 1, 2  # what leads; EACH: actors, one at a time, resource by resource
WHOLE, OF_RESOURCES, OF_ACTORS = 0, 1, 2  # what a piece has of its kind: all, or resources or actors with a text


class Piece(NamedTuple):
    """A kind of access, or what a filter leaves of it; `without` are resources that another piece is about."""

    kind: AccessKind
    phase: int = WHOLE
    without: frozenset[str] = frozenset()
    leads: int = RESOURCES

    @property
    def order(self) -> tuple[str, bool, str, str, int]:
        kind = self.kind
        return kind.resource, kind.action is None, kind.action or "", kind.actor, self.phase

    def cursor(self, leading: str | None = None, following: str | None = None, action: str = "") -> ReviewCursor:
        kind = self.kind
        return ReviewCursor(kind.resource, kind.action, kind.actor, self.phase, self.leads, leading, following, action)


class ReviewCursor(NamedTuple):
    """What was shown last: all of a leading id (`following` is None), or up to a line; without `leading`, nothing."""

    resource_type: str
    action: str | None  # of the kind
    actor_type: str
    phase: int
    leads: int
    leading: str | None = None
    following: str | None = None
    named: str = ""  # the action of the line

    @property
    def order(self) -> tuple[str, bool, str, str, int]:
        return self.resource_type, self.action is None, self.action or "", self.actor_type, self.phase

    @property
    def place(self) -> tuple[str, str, str]:
        """Return a key that orders the cursors of one piece."""
        return self.leading or "", self.following or "", self.named

    def is_of(self, kind: AccessKind) -> bool:
        return (self.resource_type, self.action, self.actor_type) == (kind.resource, kind.action, kind.actor)

    def is_before(self, leading: str, following: str, named: str) -> bool:
        """Say whether a line of the same piece comes after this cursor, so that it is still to be shown."""
        if self.leading is None:
            return True
        if self.following is None:
            return leading > self.leading
        return (leading, following, named) > (self.leading, self.following, self.named)


class Last(NamedTuple):
    """The last of the moments: a revision, and its time in microseconds."""

    revision: int
    at: int


class PageStart(NamedTuple):
    """Where a page begins, how many lines of each state were shown before it, and the last moment of its review."""

    cursor: ReviewCursor
    shown: Mapping[str, int]
    last: Last


def page_start_text(page_start: PageStart) -> str:
    cursor, shown, last = page_start
    return orjson.dumps([*cursor, [shown.get(state, 0) for state in COUNTED], [*last]]).decode()


def page_start_from_text(text: str) -> PageStart | None:
    """Return what an address says of where its page begins; None if it is the first page."""
    if not text:
        return None
    try:
        *parts, numbers, last = orjson.loads(text)
        resource_type, action, actor_type, phase, leads, leading, following, named = parts
        texts = (resource_type, actor_type, named)
        maybe = (action, leading, following)
        is_right = all(type(each) is str for each in texts) and all(each is None or type(each) is str for each in maybe)
        is_right = is_right and type(phase) is int and type(leads) is int
        is_right = is_right and len(numbers) == len(COUNTED) and len(last) == len(Last._fields)
        is_right = is_right and all(type(each) is int and 0 <= each < _MOST for each in numbers)
        is_right = is_right and all(type(each) is int and 0 <= each <= LAST_REVISION for each in last)
    except (ValueError, TypeError):
        is_right = False
    if not is_right:
        raise MalformedRequest("after", "says nothing that a page can go on from; begin with the first page")
    shown = Counter({state: number for state, number in zip(COUNTED, numbers) if number})
    cursor = ReviewCursor(resource_type, action, actor_type, phase, leads, leading, following, named)
    return PageStart(cursor, shown, Last(*last))
