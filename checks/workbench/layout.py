"""Where nodes and lines are in a picture: in columns from left to right, permissions last."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from checks.workbench.graph import ANY_NAME, Grant, Node, Sheet

_CHARACTER, _SMALL, PADDING, HEIGHT, _GAP, _COLUMN = 7.3, 6.2, 12, 28, 14, 72
TALL = 42  # of a node that says whose it is
_LANE = 6  # the height of what only passes through a column
MOST_TEXT = 60  # characters of a node


@dataclass(frozen=True, slots=True)
class Lane:
    """Where lines from a node pass through a column between the node's and their target's."""

    node: Node
    rank: int


LayoutNode = Node | Lane  # where lines begin, end, or pass through


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
    """The grants that are drawn, the column of each node, and a box for each layout node."""

    grants: tuple[Grant, ...]
    ranks: dict[Node, int]
    boxes: dict[LayoutNode, Box]

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


def layout_of_all(grants: tuple[Grant, ...], target: Node) -> Layout:
    """Lay nodes of several types out together: each left of what it leads to, and the target last."""
    return _laid_out(grants, _ranks_before(grants, target))


def _laid_out(grants: tuple[Grant, ...], ranks: dict[Node, int]) -> Layout:
    return Layout(grants, ranks, _placed(_columns(grants, ranks), grants, ranks))


# ---- columns: lines lead from left to right, as far as rules are not circular ------------------------------------


def _ranks_of_sheet(sheet: Sheet) -> dict[Node, int]:
    """Return the column of each node: roles after what grants them, permissions last, others before their targets."""
    roles = dict.fromkeys(Node("role", name) for name in sheet.roles)
    permissions = dict.fromkeys(Node("permission", name) for name in sheet.permissions)
    for node in (node for grant in sheet.grants for node in (*grant.sources, grant.target)):
        if node.kind in ("role", "permission"):
            (roles if node.kind == "role" else permissions)[node] = None
    ranks = _ranked(list(roles), sheet.grants, 1)
    ranks |= _ranked(list(permissions), sheet.grants, max(ranks.values(), default=0) + 1)
    for grant in sheet.grants:
        for node in grant.sources:
            if node.kind not in ("role", "permission"):
                ranks[node] = min(ranks.get(node, ranks[grant.target]), ranks[grant.target] - 1)
    return ranks


def _ranked(nodes: list[Node], grants: Iterable[Grant], first: int) -> dict[Node, int]:
    """Return columns for these nodes, each right of those that grant it; a cycle begins with its first node."""
    above: dict[Node, set[Node]] = {node: set() for node in nodes}
    for grant in grants:
        for source in grant.sources:
            if grant.target in above and source in above and source != grant.target:
                above[grant.target].add(source)
    ranks: dict[Node, int] = {}
    waiting = list(nodes)
    while waiting:
        for node in [node for node in waiting if above[node] <= ranks.keys()] or waiting[:1]:
            ranks[node] = max((ranks[each] + 1 for each in above[node] if each in ranks), default=first)
        waiting = [node for node in waiting if node not in ranks]
    return ranks


def _ranks_before(grants: Iterable[Grant], target: Node) -> dict[Node, int]:
    """Return the column of each node, by its longest path to the target; cycles are cut."""
    above: dict[Node, dict[Node, None]] = {target: {}}
    for grant in grants:
        for source in grant.sources:
            above.setdefault(grant.target, {})[source] = None
            above.setdefault(source, {})
    distances = dict.fromkeys(above, 0)
    for node in reversed(_finished(above, target)):  # each after all that it leads to
        for source in above[node]:
            distances[source] = max(distances[source], distances[node] + 1)
    furthest = max(distances.values())
    return {node: furthest - distance for node, distance in distances.items()}


def _finished(above: dict[Node, dict[Node, None]], target: Node) -> list[Node]:
    """Return the nodes in postorder of a depth-first search back from the target; cut edges that close a cycle."""
    order: list[Node] = []
    seen: set[Node] = set()
    open_: dict[Node, Iterator[Node]] = {}
    for start in (target, *above):
        if start not in seen:
            seen.add(start)
            open_[start] = iter(list(above[start]))
        while open_:
            node = next(reversed(open_))
            source = next(open_[node], None)
            if source is None:
                order.append(node)
                del open_[node]
            elif source in open_:
                del above[node][source]
            elif source not in seen:
                seen.add(source)
                open_[source] = iter(list(above[source]))
    return order


def _columns(grants: Iterable[Grant], ranks: dict[Node, int]) -> list[list[LayoutNode]]:
    columns: list[dict[LayoutNode, None]] = [{} for _ in range(max(ranks.values(), default=-1) + 1)]
    for node, rank in ranks.items():
        columns[rank][node] = None
    for grant in grants:
        for source in grant.sources:
            for each in route(source, grant.target, ranks):
                if isinstance(each, Lane):
                    columns[each.rank][each] = None
    return [list(column) for column in columns if column]


def route(source: Node, target: Node, ranks: dict[Node, int]) -> list[LayoutNode]:
    """Return where a line goes from the source through the columns between to the target."""
    return [source, *(Lane(source, rank) for rank in range(ranks[source] + 1, ranks[target])), target]


def _placed(columns: list[list[LayoutNode]], grants: Iterable[Grant], ranks: dict[Node, int]) -> dict[LayoutNode, Box]:
    """Return a box for each layout node, next to what it is connected with, as far as there is room."""
    neighbours: dict[LayoutNode, set[LayoutNode]] = {node: set() for column in columns for node in column}
    for grant in grants:
        for source in grant.sources:
            for one, other in itertools.pairwise(route(source, grant.target, ranks)):
                neighbours[one].add(other)
                neighbours[other].add(one)
    boxes = _stacked(columns)
    for _ in range(3):
        columns = [sorted(column, key=lambda node: _height_wanted(node, neighbours, boxes)) for column in columns]
        boxes = _stacked(columns)
    return boxes


def _height_wanted(
    node: LayoutNode, neighbours: dict[LayoutNode, set[LayoutNode]], boxes: dict[LayoutNode, Box]
) -> float:
    around = [boxes[each].left[1] for each in neighbours[node]] or [boxes[node].left[1]]
    return sum(around) / len(around)


def _stacked(columns: Sequence[Sequence[LayoutNode]]) -> dict[LayoutNode, Box]:
    """Return boxes for every column from above, centred beside the tallest."""
    heights = [sum(_height(node) + _GAP for node in column) for column in columns]
    boxes: dict[LayoutNode, Box] = {}
    x: float = 2
    for column, height in zip(columns, heights):
        width = max(_width(node) for node in column)
        y = 8 + (max(heights) - height) / 2
        for node in column:
            boxes[node] = Box(x, y, width, _height(node))
            y += _height(node) + _GAP
        x += width + _COLUMN
    return boxes


# ---- texts and how much room they take ----------------------------------------------------------------------------


def text_of(node: Node) -> str:
    text = f"every {node.kind}" if node.label == ANY_NAME else node.label.replace(f"{ANY_NAME} on ", "the same on ")
    return shortened(text)


def shortened(text: str) -> str:
    """Return the text as one that can be shown, and not too long."""
    text = printable(text)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def printable(text: str) -> str:
    """Replace unprintable characters: some cannot stand in a picture, others reverse the text beside them."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def _height(node: LayoutNode) -> int:
    if isinstance(node, Lane):
        return _LANE
    return TALL if node.owner else HEIGHT


def _width(node: LayoutNode) -> float:
    if isinstance(node, Lane):
        return 0
    wide = max(_columns_of(text_of(node)) * _CHARACTER, _columns_of(shortened(node.owner)) * _SMALL)
    return max(wide, 12) + 2 * PADDING


def _columns_of(text: str) -> int:
    """Return how many letters wide the text is: some characters are as wide as two."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)
