"""Lay out a graph, and draw it as SVG or Mermaid."""

import itertools
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from django.template import Context, Engine
from django.utils.safestring import SafeString

from checks.picture.graph import ANY_NAME, Grant, GraphNode, Sheet, joined

# ---- Layout of nodes and lines: in columns from left to right, permissions last -----------------------------------

_CHARACTER, _SMALL, _PADDING, HEIGHT, _GAP, _COLUMN = 7.3, 6.2, 12, 28, 14, 72
TALL = 42  # height of a node that shows its owner
_LANE = 6  # height of a lane
MOST_TEXT = 60  # characters per node


@dataclass(frozen=True, slots=True)
class Lane:
    """Where lines from a node pass through a column on the way to their target."""

    node: GraphNode
    rank: int


LayoutNode = GraphNode | Lane  # where lines start, end, or pass through


Point = tuple[float, ...]  # x and y


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: int

    @property
    def middle(self) -> float:
        return round(self.y + self.height / 2, 1)

    @property
    def left(self) -> Point:
        return self.x, self.middle

    @property
    def right(self) -> Point:
        return round(self.x + self.width, 1), self.middle


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """The grants to draw, the column of each node, and a box for each layout node."""

    grants: tuple[Grant, ...]
    ranks: dict[GraphNode, int]
    boxes: dict[LayoutNode, Box]

    @property
    def width(self) -> int:
        return round(max((box.right[0] for box in self.boxes.values()), default=0)) + 30

    @property
    def height(self) -> int:
        below = 28 if any(self._goes_back(grant) for grant in self.grants) else 8
        return round(max((box.y + box.height for box in self.boxes.values()), default=0)) + below

    def _goes_back(self, grant: Grant) -> bool:
        """Return whether the lines of a grant go backward, below the boxes."""
        return any(self.ranks[source] >= self.ranks[grant.target] for source in grant.sources)


def layout_of_sheet(sheet: Sheet) -> GraphLayout:
    return _laid_out(sheet.grants, _ranks_of_sheet(sheet))


def layout_of_all(grants: tuple[Grant, ...], target: GraphNode) -> GraphLayout:
    """Lay out nodes of several types together: each left of what it leads to, and the target last."""
    return _laid_out(grants, _ranks_before(grants, target))


def _laid_out(grants: tuple[Grant, ...], ranks: dict[GraphNode, int]) -> GraphLayout:
    return GraphLayout(grants, ranks, _placed(_columns(grants, ranks), grants, ranks))


# ---- columns: lines lead from left to right, unless rules are circular -------------------------------------------


def _ranks_of_sheet(sheet: Sheet) -> dict[GraphNode, int]:
    """Return the column of each node: roles after what grants them, permissions last, others before their targets."""
    roles = dict.fromkeys(GraphNode("role", name) for name in sheet.roles)
    permissions = dict.fromkeys(GraphNode("permission", name) for name in sheet.permissions)
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


def _ranked(nodes: list[GraphNode], grants: Iterable[Grant], first: int) -> dict[GraphNode, int]:
    """Return columns for these nodes, each right of those that grant it; a cycle starts with its first node."""
    above: dict[GraphNode, set[GraphNode]] = {node: set() for node in nodes}
    for grant in grants:
        for source in grant.sources:
            if grant.target in above and source in above and source != grant.target:
                above[grant.target].add(source)
    ranks: dict[GraphNode, int] = {}
    waiting = list(nodes)
    while waiting:
        for node in [node for node in waiting if above[node] <= ranks.keys()] or waiting[:1]:
            ranks[node] = max((ranks[each] + 1 for each in above[node] if each in ranks), default=first)
        waiting = [node for node in waiting if node not in ranks]
    return ranks


def _ranks_before(grants: Iterable[Grant], target: GraphNode) -> dict[GraphNode, int]:
    """Return the column of each node, by its longest path to the target; cycles are cut."""
    above: dict[GraphNode, dict[GraphNode, None]] = {target: {}}
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


def _finished(above: dict[GraphNode, dict[GraphNode, None]], target: GraphNode) -> list[GraphNode]:
    """Return the nodes in postorder of a depth-first search back from the target; edges that close a cycle are cut."""
    order: list[GraphNode] = []
    seen: set[GraphNode] = set()
    open_: dict[GraphNode, Iterator[GraphNode]] = {}
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


def _columns(grants: Iterable[Grant], ranks: dict[GraphNode, int]) -> list[list[LayoutNode]]:
    columns: list[dict[LayoutNode, None]] = [{} for _ in range(max(ranks.values(), default=-1) + 1)]
    for node, rank in ranks.items():
        columns[rank][node] = None
    for grant in grants:
        for source in grant.sources:
            for each in route(source, grant.target, ranks):
                if isinstance(each, Lane):
                    columns[each.rank][each] = None
    return [list(column) for column in columns if column]


def route(source: GraphNode, target: GraphNode, ranks: dict[GraphNode, int]) -> list[LayoutNode]:
    """Return the stops of a line from the source through the columns between to the target."""
    return [source, *(Lane(source, rank) for rank in range(ranks[source] + 1, ranks[target])), target]


def _placed(
    columns: list[list[LayoutNode]], grants: Iterable[Grant], ranks: dict[GraphNode, int]
) -> dict[LayoutNode, Box]:
    """Return a box for each layout node, next to what it is connected with, as far as there is room."""
    neighbours: dict[LayoutNode, set[LayoutNode]] = {node: set() for column in columns for node in column}
    for grant in grants:
        for source in grant.sources:
            for one, other in itertools.pairwise(route(source, grant.target, ranks)):
                neighbours[one].add(other)
                neighbours[other].add(one)
    heights = {node: box.left[1] for node, box in _stacked(columns).items()}

    def wanted(node: LayoutNode) -> float:
        around = [heights[each] for each in neighbours[node]] or [heights[node]]
        return sum(around) / len(around)

    for place in (*range(len(columns)), *reversed(range(len(columns)))) * 3:
        # One column after the other: if all moved at once, two columns would go past each other, and lines cross.
        free = sorted(heights[node] for node in columns[place])
        columns[place].sort(key=wanted)
        heights.update(zip(columns[place], free))
    return _stacked(columns)


def _stacked(columns: Sequence[Sequence[LayoutNode]]) -> dict[LayoutNode, Box]:
    """Return boxes for every column, stacked from the top and vertically centered."""
    heights = [sum(_height(node) + _GAP for node in column) for column in columns]
    boxes: dict[LayoutNode, Box] = {}
    x: float = 2
    for column, height in zip(columns, heights):
        width = max(_width(node) for node in column)
        y = 8 + (max(heights) - height) / 2
        for node in column:
            boxes[node] = Box(round(x, 1), round(y, 1), round(width, 1), _height(node))
            y += _height(node) + _GAP
        x += width + _COLUMN
    return boxes


# ---- texts and their width ----------------------------------------------------------------------------------------


def text_of(node: GraphNode) -> str:
    text = f"every {node.kind}" if node.label == ANY_NAME else node.label.replace(f"{ANY_NAME} on ", "the same on ")
    return shortened(text)


def shortened(text: str) -> str:
    """Return the text without unprintable characters, and truncated."""
    text = printable(text)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def printable(text: str) -> str:
    """Replace unprintable characters: some are invalid in SVG, others reverse the adjacent text."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def _height(node: LayoutNode) -> int:
    if isinstance(node, Lane):
        return _LANE
    return TALL if node.owner else HEIGHT


def _width(node: LayoutNode) -> float:
    if isinstance(node, Lane):
        return 0
    wide = max(_columns_of(text_of(node)) * _CHARACTER, _columns_of(shortened(node.owner)) * _SMALL)
    return max(wide, 12) + 2 * _PADDING


def _columns_of(text: str) -> int:
    """Return the width of the text in letters: some characters are two letters wide."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


# ---- Mermaid text, which many Markdown renderers draw -------------------------------------------------------------
# A policy's names only appear in labels, where all except letters, digits and a few signs are escaped by number. The
# ids of nodes are generated.

_SHAPES = {"role": ("([", "])"), "permission": ("[", "]"), "relation": ("[/", "/]"), "condition": ("{{", "}}")}
_STROKES = {"role": "#3b7dd8", "permission": "#2da44e", "relation": "#8a4fd0", "condition": "#8c959f"}
_PLAIN = " _.,-=()"  # besides letters and digits


def mermaid(sheets: Sequence[Sheet]) -> str:
    """Return a flowchart with a box for each type."""
    grants = joined(sheets)
    names = {node: f"n{number}" for number, node in enumerate(_nodes(sheets, grants))}
    lines = ["flowchart LR"]
    owners: dict[str, list[str]] = {}
    for node, name in names.items():
        owners.setdefault(node.owner, []).append(_node(node, name))
    for number, grant in enumerate(grants):
        if len(grant.sources) > 1:
            owners[grant.target.owner].append(f'd{number}(("and"))')
    for number, (owner, nodes) in enumerate(owners.items()):
        lines.append(f'  subgraph t{number}["{_label(shortened(owner))}"]')
        lines += [f"    {node}" for node in nodes]
        lines.append("  end")
    lines += _arrows(grants, names)
    for kind, stroke in _STROKES.items():
        of_kind = [name for node, name in names.items() if node.kind == kind]
        if of_kind:
            dashes = ",stroke-dasharray:4 3" if kind == "condition" else ""
            lines.append(f"  classDef {kind} stroke:{stroke},stroke-width:2px{dashes}")
            lines.append(f"  class {','.join(of_kind)} {kind}")
    return "\n".join(lines) + "\n"


def _nodes(sheets: Sequence[Sheet], grants: Sequence[Grant]) -> dict[GraphNode, None]:
    """Return the nodes of all declared roles and permissions, and of all grants."""
    found: dict[GraphNode, None] = {}
    for sheet in sheets:
        found |= dict.fromkeys(GraphNode("role", name, sheet.title) for name in sheet.roles)
        found |= dict.fromkeys(GraphNode("permission", name, sheet.title) for name in sheet.permissions)
    for grant in grants:
        found |= dict.fromkeys((*grant.sources, grant.target))
    return found


def _node(node: GraphNode, name: str) -> str:
    begin, end = _SHAPES[node.kind]
    return f'{name}{begin}"{_label(text_of(node))}"{end}'


def _arrows(grants: Sequence[Grant], names: dict[GraphNode, str]) -> Iterator[str]:
    for number, grant in enumerate(grants):
        if len(grant.sources) == 1:
            yield f"  {names[grant.sources[0]]} --> {names[grant.target]}"
            continue
        yield f"  d{number} --> {names[grant.target]}"
        for source in grant.sources:
            yield f"  {names[source]} --- d{number}"


def _label(text: str) -> str:
    return "".join(each if each.isalnum() or each in _PLAIN else f"#{ord(each)};" for each in text)


# ---- picture ------------------------------------------------------------------------------------------------------
# A layout as SVG: text, lines and boxes, with links on them if the picture is part of a page.
#
# Colors come from the page's stylesheet, or for a file from its own (`document`). The elements are in templates.

_MARGIN, _HEADING = 24, 34  # of a document, as in its template
# An engine of their own: that of the settings loads the template tags of all apps, which commands have no use for.
_TEMPLATES = Engine([str(Path(__file__).parents[1] / "templates" / "checks" / "picture")])
NodeLink = Callable[[GraphNode], str]  # the URL that a node links to, or empty


def no_link(node: GraphNode) -> str:
    return ""


def picture_of(
    layout: GraphLayout, title: str, link: NodeLink = no_link, meant: GraphNode | None = None, percent: int = 100
) -> SafeString:
    """Draw a layout; `meant` is a node to highlight, and `percent` the scale of the whole picture."""
    size = {"width": round(layout.width * percent / 100), "height": round(layout.height * percent / 100)}
    drawn = _drawn(layout, link, meant)
    return _rendered("picture", layout=layout, title=printable(title), **size, drawn=drawn)


def document(pictures: Sequence[tuple[str, GraphLayout]]) -> str:
    """Return pictures with headings, one below the other, as a self-contained SVG."""
    widths = [200.0] + [max(layout.width, len(shortened(heading)) * 10.0) for heading, layout in pictures]
    shown, y = [], _MARGIN
    for heading, layout in pictures:
        shown.append((shortened(heading), y, _drawn(layout, no_link, None)))
        y += _HEADING + layout.height + _MARGIN
    return _rendered("document", pictures=shown, width=round(max(widths) + 2 * _MARGIN), height=y)


def document_of_sheets(sheets: Sequence[Sheet]) -> str:
    return document([(sheet.title, layout_of_sheet(sheet)) for sheet in sheets])


def _drawn(layout: GraphLayout, link: NodeLink, meant: GraphNode | None) -> SafeString:
    strokes = [stroke for grant in layout.grants for stroke in _strokes(grant, layout)]
    nodes = [
        (each, box, link(each), printable(f"{each.owner}: {each.label}" if each.owner else each.label),
         shortened(each.owner), text_of(each))
        for each, box in layout.boxes.items()
        if isinstance(each, GraphNode)
    ]  # fmt: skip
    return _rendered("drawn", strokes=strokes, nodes=nodes, meant=meant)


def _rendered(template: str, **shown: object) -> SafeString:
    return _TEMPLATES.get_template(f"{template}.svg").render(Context(shown, use_l10n=False))


# ---- strokes -------------------------------------------------------------------------------------------------


class Stroke(NamedTuple):
    """A line as a path of SVG; `tip` is where it ends in an arrow, and `dot` where it starts with one."""

    shape: str
    title: str
    tip: Point | None = None
    dot: Point | None = None


def _strokes(grant: Grant, layout: GraphLayout) -> Iterator[Stroke]:
    """Draw a grant: a line from its source to its target.

    If it needs several sources, draw a line from each to a dot, and one from the dot to the target.
    """
    target = layout.boxes[grant.target].left
    title = printable(f"line {grant.line}: {grant.text}")
    if len(grant.sources) == 1:
        yield _line(grant.sources[0], grant.target, target, True, title, layout)
        return
    last = [layout.boxes[route(source, grant.target, layout.ranks)[-2]] for source in grant.sources]
    dot = _rounded((target[0] - 26, (sum(box.right[1] for box in last) / len(last) + target[1]) / 2))
    for source in grant.sources:
        yield _line(source, grant.target, dot, False, title, layout)
    yield Stroke(_path([dot, target]), title, target, dot)


def _line(source: GraphNode, target: GraphNode, end: Point, is_last: bool, title: str, layout: GraphLayout) -> Stroke:
    ranks, boxes = layout.ranks, layout.boxes
    if ranks[source] >= ranks[target]:  # a cycle of rules: the line goes backward, below the boxes
        return Stroke(_path_back(boxes[source], boxes[target]), title, boxes[target].left)
    points = [boxes[source].right]
    for lane in route(source, target, ranks)[1:-1]:
        points += [boxes[lane].left, boxes[lane].right]
    return Stroke(_path([*points, end]), title, end if is_last else None)


def _path(points: list[Point]) -> str:
    shape = "M{} {}".format(*points[0])
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        middle = round(x + (to_x - x) / 2, 1)
        shape += f"C{middle} {y} {middle} {to_y} {to_x} {to_y}"
    return shape


def _path_back(source: Box, target: Box) -> str:
    low = round(max(source.y + source.height, target.y + target.height, HEIGHT) + 10, 1)
    (x, y), (to_x, to_y) = source.right, target.left
    right, left, middle = _rounded((x + 28, to_x - 28, (x + to_x) / 2))
    return f"M{x} {y}C{right} {y} {right} {low} {middle} {low}C{left} {low} {left} {to_y} {to_x} {to_y}"


def _rounded(numbers: tuple[float, ...]) -> tuple[float, ...]:
    return tuple([round(each, 1) for each in numbers])
