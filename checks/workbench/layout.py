"""Where marks and lines are in a picture: in columns from left to right, permissions last."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from checks.workbench.graph import ANY_NAME, Grant, Mark, Sheet

_CHARACTER, _SMALL, PADDING, HEIGHT, _GAP, _COLUMN = 7.3, 6.2, 12, 28, 14, 72
TALL = 42  # of a mark that says whose it is
_LANE = 6  # the height of what only passes through a column
MOST_TEXT = 60  # characters of a mark


@dataclass(frozen=True, slots=True)
class Lane:
    """Where lines from a mark pass through a column between the mark's and their target's."""

    mark: Mark
    rank: int


Spot = Mark | Lane  # where lines begin, end, or pass through


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> tuple[float, float]:
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> tuple[float, float]:
        return self.x + self.width, self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """The grants that are drawn, the column of each mark, and a box for each spot."""

    grants: tuple[Grant, ...]
    ranks: dict[Mark, int]
    boxes: dict[Spot, Box]

    @property
    def width(self) -> float:
        return max((box.x + box.width for box in self.boxes.values()), default=0) + 30

    @property
    def height(self) -> float:
        below = 28 if any(self._goes_back(grant) for grant in self.grants) else 8
        return max((box.y + box.height for box in self.boxes.values()), default=0) + below

    def _goes_back(self, grant: Grant) -> bool:
        """Say whether the lines of a grant go around below."""
        return any(self.ranks[source] >= self.ranks[grant.target] for source in grant.sources)


def layout_of_sheet(sheet: Sheet) -> Layout:
    return _laid_out(sheet.grants, _ranks_of_sheet(sheet))


def layout_of_all(grants: tuple[Grant, ...], target: Mark) -> Layout:
    """Lay marks of several types out together: each left of what it leads to, and the target last."""
    return _laid_out(grants, _ranks_before(grants, target))


def _laid_out(grants: tuple[Grant, ...], ranks: dict[Mark, int]) -> Layout:
    return Layout(grants, ranks, _placed(_columns(grants, ranks), grants, ranks))


# ---- columns: lines lead from left to right, as far as rules are not circular ------------------------------------


def _ranks_of_sheet(sheet: Sheet) -> dict[Mark, int]:
    """Return the column of each mark: roles after what grants them, permissions last, others before their targets."""
    roles = dict.fromkeys(Mark("role", name) for name in sheet.roles)
    permissions = dict.fromkeys(Mark("permission", name) for name in sheet.permissions)
    for mark in (mark for grant in sheet.grants for mark in (*grant.sources, grant.target)):
        if mark.kind in ("role", "permission"):
            (roles if mark.kind == "role" else permissions)[mark] = None
    ranks = _ranked(list(roles), sheet.grants, 1)
    ranks |= _ranked(list(permissions), sheet.grants, max(ranks.values(), default=0) + 1)
    for grant in sheet.grants:
        for mark in grant.sources:
            if mark.kind not in ("role", "permission"):
                ranks[mark] = min(ranks.get(mark, ranks[grant.target]), ranks[grant.target] - 1)
    return ranks


def _ranked(marks: list[Mark], grants: Iterable[Grant], first: int) -> dict[Mark, int]:
    """Return columns for these marks, each right of those that grant it; a cycle begins with its first mark."""
    above: dict[Mark, set[Mark]] = {mark: set() for mark in marks}
    for grant in grants:
        for source in grant.sources:
            if grant.target in above and source in above and source != grant.target:
                above[grant.target].add(source)
    ranks: dict[Mark, int] = {}
    waiting = list(marks)
    while waiting:
        for mark in [mark for mark in waiting if above[mark] <= ranks.keys()] or waiting[:1]:
            ranks[mark] = max((ranks[each] + 1 for each in above[mark] if each in ranks), default=first)
        waiting = [mark for mark in waiting if mark not in ranks]
    return ranks


def _ranks_before(grants: Iterable[Grant], target: Mark) -> dict[Mark, int]:
    """Return the column of each mark, by its longest path to the target; cycles are cut."""
    above: dict[Mark, dict[Mark, None]] = {target: {}}
    for grant in grants:
        for source in grant.sources:
            above.setdefault(grant.target, {})[source] = None
            above.setdefault(source, {})
    distances = dict.fromkeys(above, 0)
    for mark in reversed(_finished(above, target)):  # each after all that it leads to
        for source in above[mark]:
            distances[source] = max(distances[source], distances[mark] + 1)
    furthest = max(distances.values())
    return {mark: furthest - distance for mark, distance in distances.items()}


def _finished(above: dict[Mark, dict[Mark, None]], target: Mark) -> list[Mark]:
    """Return the marks in postorder of a depth-first search back from the target; cut edges that close a cycle."""
    order: list[Mark] = []
    seen: set[Mark] = set()
    open_: dict[Mark, Iterator[Mark]] = {}
    for start in (target, *above):
        if start not in seen:
            seen.add(start)
            open_[start] = iter(list(above[start]))
        while open_:
            mark = next(reversed(open_))
            source = next(open_[mark], None)
            if source is None:
                order.append(mark)
                del open_[mark]
            elif source in open_:
                del above[mark][source]
            elif source not in seen:
                seen.add(source)
                open_[source] = iter(list(above[source]))
    return order


def _columns(grants: Iterable[Grant], ranks: dict[Mark, int]) -> list[list[Spot]]:
    columns: list[dict[Spot, None]] = [{} for _ in range(max(ranks.values(), default=-1) + 1)]
    for mark, rank in ranks.items():
        columns[rank][mark] = None
    for grant in grants:
        for source in grant.sources:
            for spot in route(source, grant.target, ranks):
                if isinstance(spot, Lane):
                    columns[spot.rank][spot] = None
    return [list(column) for column in columns if column]


def route(source: Mark, target: Mark, ranks: dict[Mark, int]) -> list[Spot]:
    """Return where a line goes from the source through the columns between to the target."""
    return [source, *(Lane(source, rank) for rank in range(ranks[source] + 1, ranks[target])), target]


def _placed(columns: list[list[Spot]], grants: Iterable[Grant], ranks: dict[Mark, int]) -> dict[Spot, Box]:
    """Return a box for each spot, next to what it is connected with, as far as there is room."""
    neighbours: dict[Spot, set[Spot]] = {spot: set() for column in columns for spot in column}
    for grant in grants:
        for source in grant.sources:
            for one, other in itertools.pairwise(route(source, grant.target, ranks)):
                neighbours[one].add(other)
                neighbours[other].add(one)
    boxes = _stacked(columns)
    for _ in range(3):
        columns = [sorted(column, key=lambda spot: _height_wanted(spot, neighbours, boxes)) for column in columns]
        boxes = _stacked(columns)
    return boxes


def _height_wanted(spot: Spot, neighbours: dict[Spot, set[Spot]], boxes: dict[Spot, Box]) -> float:
    around = [boxes[each].left[1] for each in neighbours[spot]] or [boxes[spot].left[1]]
    return sum(around) / len(around)


def _stacked(columns: Sequence[Sequence[Spot]]) -> dict[Spot, Box]:
    """Return boxes for every column from above, centred beside the tallest."""
    heights = [sum(_height(spot) + _GAP for spot in column) for column in columns]
    boxes: dict[Spot, Box] = {}
    x: float = 2
    for column, height in zip(columns, heights):
        width = max(_width(spot) for spot in column)
        y = 8 + (max(heights) - height) / 2
        for spot in column:
            boxes[spot] = Box(x, y, width, _height(spot))
            y += _height(spot) + _GAP
        x += width + _COLUMN
    return boxes


# ---- texts and how much room they take ----------------------------------------------------------------------------


def text_of(mark: Mark) -> str:
    text = f"every {mark.kind}" if mark.label == ANY_NAME else mark.label.replace(f"{ANY_NAME} on ", "the same on ")
    return shortened(text)


def shortened(text: str) -> str:
    """Return the text as one that can be shown, and not too long."""
    text = printable(text)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def printable(text: str) -> str:
    """Replace unprintable characters: some cannot stand in a picture, others reverse the text beside them."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def _height(spot: Spot) -> int:
    if isinstance(spot, Lane):
        return _LANE
    return TALL if spot.owner else HEIGHT


def _width(spot: Spot) -> float:
    if isinstance(spot, Lane):
        return 0
    wide = max(_columns_of(text_of(spot)) * _CHARACTER, _columns_of(shortened(spot.owner)) * _SMALL)
    return max(wide, 12) + 2 * PADDING


def _columns_of(text: str) -> int:
    """Return how many letters wide the text is: some characters are as wide as two."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)
