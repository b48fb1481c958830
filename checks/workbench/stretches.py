"""A stretch of a review: a page of its lines from a cursor on, and where the next page begins.

A page asks small questions until its time is over, at least one of them. So going from page to page shows everything,
however much there is. Each page says how far it has looked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from django.db import connection

from checks.explain.cases import ANY
from checks.workbench.review import Access, AccessState, NotAnswered
from checks.workbench.review_cursor import ACTORS, Last, PageStart, ReviewCursor

PAGE = 100  # lines
WAIT = 1.0  # seconds of real time, after which a page asks nothing more
SECONDS = 0.1  # for a page to find its lines and then count those that follow; planning does not count
_WITHOUT_LINES = 2  # times SECONDS, as long as no line is found


class ReviewLine(NamedTuple):
    cursor: ReviewCursor
    access: Access


class Chunk(NamedTuple):
    """Lines in order, what could not be answered, and the cursor after all of them."""

    lines: list[ReviewLine]
    end: ReviewCursor
    refused: tuple[NotAnswered, ...] = ()


@dataclass(frozen=True)
class Stretch:
    """A page of lines. `counts` are all lines found: on earlier pages, on this one, and beyond as far as it looked."""

    lines: tuple[Access, ...]
    counts: Mapping[str, int]
    before: Mapping[str, int]  # the same, but only those on earlier pages
    not_answered: tuple[NotAnswered, ...]
    is_first: bool
    is_whole: bool  # whether the review was read to its end
    looked: ReviewCursor | None  # how far it was read, if not
    next: PageStart | None
    has_unnamed: bool = False  # whether a line is about all resources that nothing names, and others have their own

    @property
    def is_short(self) -> bool:
        """Say whether the time was over before the page was full."""
        return not self.is_whole and len(self.lines) < PAGE

    @property
    def start(self) -> int:
        """Return the number of the page's first line, from 1."""
        return sum(count for state, count in self.before.items() if state != AccessState.KEPT) + 1

    @property
    def counted(self) -> int:
        """Return how many of the page's lines have numbers: those that were kept have none."""
        return sum(line.state != AccessState.KEPT for line in self.lines)


def stretch_of(
    chunks: Iterable[Chunk],
    page_start: PageStart | None,
    last: Last,
    wanted: Callable[[Access], bool],
    planning: Callable[[], float],
) -> Stretch:
    """Read wanted lines from the chunks until the time is over; `planning` returns seconds that do not count."""
    clock = time.thread_time if connection.vendor == "sqlite" else time.monotonic  # SQLite runs in this thread
    began, opened = clock(), time.monotonic()
    before = Counter(page_start.shown if page_start else {})
    page: list[ReviewLine] = []
    found: Counter[str] = Counter()
    refused: list[NotAnswered] = []
    beyond: list[NotAnswered] = []  # of chunks that were read after the page was full
    here: ReviewCursor | None = None
    is_whole, has_more = True, False
    for chunk in chunks:
        for line in chunk.lines:
            if not wanted(line.access):
                continue
            if len(page) < PAGE:
                page.append(line)
            else:
                has_more = True
            found[line.access.state] += 1
        (refused if len(page) < PAGE else beyond).extend(chunk.refused)
        here = chunk.end
        is_late = time.monotonic() - opened > max(WAIT, SECONDS)
        if clock() - began - planning() > SECONDS * (1 if page else _WITHOUT_LINES) or is_late:
            is_whole = False
            break
    following = None
    if has_more or (not is_whole and len(page) == PAGE):
        following = page[-1].cursor
    elif not is_whole:
        following = here
    if following is None:
        refused += beyond  # no further page will show them
    shown = before + Counter(line.access.state for line in page)
    return Stretch(
        tuple([line.access for line in page]),
        before + found,
        before,
        tuple(refused),
        page_start is None,
        is_whole,
        None if is_whole else here,
        PageStart(following, shown, last) if following else None,
        any(line.access.resource.id == ANY and line.cursor.leads != ACTORS for line in page),
    )


class Filter(NamedTuple):
    """A text that a line's resource or actor (as `User:ann`) must contain; or its action, without `is_of_actors`.

    Without `is_of_actors` all lines are of one actor, whose id is not searched.
    """

    text: str
    is_of_actors: bool = True

    def has(self, line: Access) -> bool:
        other = named(line.actor.type, line.actor.id) if self.is_of_actors else line.action.id or "*"
        return self.text in named(line.resource.type, line.resource.id) or self.text in other

    def is_about_ids(self, type_name: str) -> bool:
        """Say whether values of the type can contain the text only in their ids."""
        return bool(self.text) and ":" not in self.text and self.text not in type_name and self.text != "*"


def named(type_name: str, text: str) -> str:
    """Return a value as filters see it."""
    return f"{type_name}:{'*' if text == ANY else text}"
