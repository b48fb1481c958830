"""A stretch of a review: a page of its lines from a spot on, and where it goes on.

A page asks small questions until it is full and its time is over. It does at least one of them, so that whoever goes
on from page to page sees everything, however much there is; and it says how far it has looked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from django.db import connection

from checks.explain.cases import ANY
from checks.workbench.review import Access, NotAnswered, State
from checks.workbench.spots import ACTORS, Came, Last, Spot

PAGE = 100  # lines
WAIT = 1.0  # seconds by the clock on the wall, after which nobody waits for more
SECONDS = 0.1  # in which a page looks for its lines and, once it has them, counts those that follow; planning apart
_WITHOUT_LINES = 2  # times as long, as long as there is none


class Line(NamedTuple):
    spot: Spot
    access: Access


class Part(NamedTuple):
    """Lines in their order, what of them could not be told, and the spot after all of them."""

    lines: list[Line]
    end: Spot
    refused: tuple[NotAnswered, ...] = ()


@dataclass(frozen=True)
class Stretch:
    """A page of lines. `counts` are all that were found up to where it was looked, on this page and before."""

    lines: tuple[Access, ...]
    counts: Mapping[str, int]
    before: Mapping[str, int]  # of them, those on earlier pages
    not_answered: tuple[NotAnswered, ...]
    is_first: bool
    is_whole: bool  # whether it was looked to the end
    looked: Spot | None  # how far, if not
    next: Came | None
    has_unnamed: bool = False  # whether a line is about all resources that nothing names, and others have their own

    @property
    def is_short(self) -> bool:
        """Say whether the time was over before the page was full."""
        return not self.is_whole and len(self.lines) < PAGE

    @property
    def start(self) -> int:
        """Return the number of its first line, from 1."""
        return sum(count for state, count in self.before.items() if state != State.KEPT) + 1

    @property
    def counted(self) -> int:
        """Return how many of its lines have numbers: exceptions to others have none."""
        return sum(line.state != State.KEPT for line in self.lines)


def stretch_of(
    parts: Iterable[Part],
    came: Came | None,
    last: Last,
    wanted: Callable[[Access], bool],
    planning: Callable[[], float],
) -> Stretch:
    """Take lines that are wanted off the parts, until the time is over; `planning` says what of it does not count."""
    clock = time.thread_time if connection.vendor == "sqlite" else time.monotonic  # which works in this thread
    began, opened = clock(), time.monotonic()
    before = Counter(came.told if came else {})
    page: list[Line] = []
    found: Counter[str] = Counter()
    refused: list[NotAnswered] = []
    beyond: list[NotAnswered] = []  # of parts that follow the last line that there is room for
    here: Spot | None = None
    is_whole, has_more = True, False
    for part in parts:
        for line in part.lines:
            if not wanted(line.access):
                continue
            if len(page) < PAGE:
                page.append(line)
            else:
                has_more = True
            found[line.access.state] += 1
        (refused if len(page) < PAGE else beyond).extend(part.refused)
        here = part.end
        is_late = time.monotonic() - opened > max(WAIT, SECONDS)
        if clock() - began - planning() > SECONDS * (1 if page else _WITHOUT_LINES) or is_late:
            is_whole = False
            break
    following = None
    if has_more or (not is_whole and len(page) == PAGE):
        following = page[-1].spot
    elif not is_whole:
        following = here
    if following is None:
        refused += beyond  # which no page reads again
    told = before + Counter(line.access.state for line in page)
    return Stretch(
        tuple([line.access for line in page]),
        before + found,
        before,
        tuple(refused),
        came is None,
        is_whole,
        None if is_whole else here,
        Came(following, told, last) if following else None,
        any(line.access.resource.id == ANY and line.spot.leads != ACTORS for line in page),
    )


class Filter(NamedTuple):
    """A text that ids of actors or resources (`User:ann`) contain; of what one actor may do, also actions."""

    text: str
    is_of_actors: bool = True

    def has(self, line: Access) -> bool:
        other = named(line.actor.type, line.actor.id) if self.is_of_actors else line.action.id or "*"
        return self.text in named(line.resource.type, line.resource.id) or self.text in other

    def is_about_ids(self, type_name: str) -> bool:
        """Say whether whatever of the type contains the text, contains it in its id."""
        return bool(self.text) and ":" not in self.text and self.text not in type_name and self.text != "*"


def named(type_name: str, text: str) -> str:
    """Return what a filter is looked for in."""
    return f"{type_name}:{'*' if text == ANY else text}"
