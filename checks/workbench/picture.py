"""A sheet of grants as SVG: columns from left to right, roles after what grants them, permissions last.

The drawing takes its colours from the page's stylesheet, and is nothing but text, lines and boxes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from checks.workbench.graph import ANY_NAME, Grant, Mark, Sheet

_CHARACTER, _PADDING, _HEIGHT, _GAP, _COLUMN = 7.3, 12, 26, 12, 72
_LANE = 6  # the height of what only passes through a column


@dataclass(frozen=True, slots=True)
class _Lane:
    """Where lines from a mark pass through a column that lies before their target's."""

    mark: Mark
    rank: int


_Spot = Mark | _Lane  # where lines begin, end, or pass through


@dataclass(frozen=True, slots=True)
class _Box:
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
class _Layout:
    """The column of each mark, and a box for each spot."""

    ranks: dict[Mark, int]
    boxes: dict[_Spot, _Box]


def picture_of(sheet: Sheet) -> SafeString:
    ranks = _ranks(sheet)
    boxes = _placed(_columns(sheet, ranks), sheet.grants, ranks)
    lines = [line for grant in sheet.grants for line in _lines(grant, _Layout(ranks, boxes))]
    width = max((box.x + box.width for box in boxes.values()), default=0) + 30
    height = max((box.y + box.height for box in boxes.values()), default=0) + 24
    return format_html(
        '<svg class="picture" role="img" viewBox="0 0 {0} {1}" width="{0}" height="{1}" aria-label="{2}">{3}{4}</svg>',
        round(width),
        round(height),
        f"what grants what on {sheet.type or 'everything'}",
        format_html_join("", "{}", ((line,) for line in lines)),
        format_html_join("", "{}", ((_drawn(spot, box),) for spot, box in boxes.items() if isinstance(spot, Mark))),
    )


# ---- columns: lines lead from left to right, as far as rules are not circular ------------------------------------


def _ranks(sheet: Sheet) -> dict[Mark, int]:
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
    """Return columns for marks of one kind, each right of those that grant it; a circle begins with its first mark."""
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


def _columns(sheet: Sheet, ranks: dict[Mark, int]) -> list[list[_Spot]]:
    columns: list[dict[_Spot, None]] = [{} for _ in range(max(ranks.values(), default=-1) + 1)]
    for mark, rank in ranks.items():
        columns[rank][mark] = None
    for grant in sheet.grants:
        for source in grant.sources:
            for spot in _route(source, grant.target, ranks):
                if isinstance(spot, _Lane):
                    columns[spot.rank][spot] = None
    return [list(column) for column in columns if column]


def _route(source: Mark, target: Mark, ranks: dict[Mark, int]) -> list[_Spot]:
    """Return where a line goes from the source through the columns between to the target."""
    return [source, *(_Lane(source, rank) for rank in range(ranks[source] + 1, ranks[target])), target]


def _placed(columns: list[list[_Spot]], grants: Iterable[Grant], ranks: dict[Mark, int]) -> dict[_Spot, _Box]:
    """Return a box for each spot, next to what it is connected with, as far as there is room."""
    neighbours: dict[_Spot, set[_Spot]] = {spot: set() for column in columns for spot in column}
    for grant in grants:
        for source in grant.sources:
            route = _route(source, grant.target, ranks)
            for one, other in itertools.pairwise(route):
                neighbours[one].add(other)
                neighbours[other].add(one)
    boxes = _stacked(columns)
    for _ in range(3):
        columns = [sorted(column, key=lambda spot: _height_wanted(spot, neighbours, boxes)) for column in columns]
        boxes = _stacked(columns)
    return boxes


def _height_wanted(spot: _Spot, neighbours: dict[_Spot, set[_Spot]], boxes: dict[_Spot, _Box]) -> float:
    around = [boxes[each].left[1] for each in neighbours[spot]] or [boxes[spot].left[1]]
    return sum(around) / len(around)


def _stacked(columns: list[list[_Spot]]) -> dict[_Spot, _Box]:
    """Return boxes for every column from above, centred beside the tallest."""
    heights = [sum(_height(spot) + _GAP for spot in column) for column in columns]
    boxes: dict[_Spot, _Box] = {}
    x: float = 1
    for column, height in zip(columns, heights):
        width = max(_width(spot) for spot in column)
        y = 8 + (max(heights) - height) / 2
        for spot in column:
            boxes[spot] = _Box(x, y, width, _height(spot))
            y += _height(spot) + _GAP
        x += width + _COLUMN
    return boxes


def _height(spot: _Spot) -> int:
    return _HEIGHT if isinstance(spot, Mark) else _LANE


def _width(spot: _Spot) -> float:
    return len(_text(spot)) * _CHARACTER + 2 * _PADDING if isinstance(spot, Mark) else 0


def _text(mark: Mark) -> str:
    return f"every {mark.kind}" if mark.label == ANY_NAME else mark.label.replace(f"{ANY_NAME} on ", "the same on ")


# ---- strokes -------------------------------------------------------------------------------------------------


def _drawn(mark: Mark, box: _Box) -> SafeString:
    return format_html(
        '<g class="{}"><rect x="{}" y="{}" width="{}" height="{}" rx="{}"/><text x="{}" y="{}">{}</text></g>',
        mark.kind,
        round(box.x, 1),
        round(box.y, 1),
        round(box.width, 1),
        box.height,
        box.height / 2 if mark.kind == "role" else 4,
        round(box.x + _PADDING, 1),
        round(box.y + box.height / 2 + 4.5, 1),
        _text(mark),
    )


def _lines(grant: Grant, layout: _Layout) -> list[SafeString]:
    """Draw a line from the source, or from several, which must hold together, lines to a dot and one on from there."""
    target = layout.boxes[grant.target].left
    title = f"line {grant.line}: {grant.text}"
    if len(grant.sources) == 1:
        return [_line(grant.sources[0], grant.target, target, True, title, layout)]
    last = [layout.boxes[_route(source, grant.target, layout.ranks)[-2]] for source in grant.sources]
    dot = (target[0] - 26, (sum(box.right[1] for box in last) / len(last) + target[1]) / 2)
    joined = [_line(source, grant.target, dot, False, title, layout) for source in grant.sources]
    drawn = format_html('<circle cx="{}" cy="{}" r="4"><title>{}</title></circle>', *_rounded(dot), title)
    return [*joined, _stroke([dot, target], title, True), drawn]


def _line(
    source: Mark, target: Mark, end: tuple[float, float], is_last: bool, title: str, layout: _Layout
) -> SafeString:
    ranks, boxes = layout.ranks, layout.boxes
    if ranks[source] >= ranks[target]:  # rules that go in a circle: back around below
        return _back(boxes[source], boxes[target], title)
    points = [boxes[source].right]
    for lane in _route(source, target, ranks)[1:-1]:
        points += [boxes[lane].left, boxes[lane].right]
    return _stroke([*points, end], title, is_last)


def _stroke(points: list[tuple[float, float]], title: str, is_last: bool) -> SafeString:
    shape = "M{} {}".format(*_rounded(points[0]))
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        middle = x + (to_x - x) / 2
        shape += "C{} {} {} {} {} {}".format(*_rounded((middle, y, middle, to_y, to_x, to_y)))
    return _path(shape, title, points[-1] if is_last else None)


def _back(source: _Box, target: _Box, title: str) -> SafeString:
    low = max(source.y, target.y) + _HEIGHT + 10
    (x, y), (to_x, to_y) = source.right, target.left
    shape = "M{} {}C{} {} {} {} {} {}".format(*_rounded((x, y, x + 28, y, x + 28, low, (x + to_x) / 2, low)))
    shape += "C{} {} {} {} {} {}".format(*_rounded((to_x - 28, low, to_x - 28, to_y, to_x, to_y)))
    return _path(shape, title, target.left)


def _path(shape: str, title: str, tip: tuple[float, float] | None) -> SafeString:
    stroke = format_html('<path d="{}"><title>{}</title></path>', shape, title)
    if tip is None:
        return stroke
    return format_html('{}<path class="tip" d="M{} {}l-7 -4v8z"/>', stroke, *_rounded(tip))


def _rounded(numbers: tuple[float, ...]) -> tuple[float, ...]:
    return tuple([round(each, 1) for each in numbers])
