"""A layout as SVG: text, lines and boxes, with links on them if the picture is part of a page.

The drawing takes its colours from the page's stylesheet, or from its own if it is a file (`document`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from checks.workbench.graph import Grant, Node, Sheet
from checks.workbench.layout import (
    HEIGHT,
    PADDING,
    Box,
    Lane,
    Layout,
    layout_of_sheet,
    printable,
    route,
    shortened,
    text_of,
)  # fmt: skip

Link = Callable[[Node], str]  # the address that a node leads to, or an empty text


def no_link(node: Node) -> str:
    return ""


def picture_of(
    layout: Layout, title: str, link: Link = no_link, meant: Node | None = None, percent: int = 100
) -> SafeString:
    """Draw a layout; `meant` is a node to highlight, and `percent` the size of the whole picture."""
    return format_html(
        '<svg class="picture" role="group" viewBox="0 0 {} {}" width="{}" height="{}" aria-label="{}">{}</svg>',
        round(layout.width),
        round(layout.height),
        round(layout.width * percent / 100),
        round(layout.height * percent / 100),
        printable(title),
        _drawing(layout, link, meant),
    )


def _drawing(layout: Layout, link: Link, meant: Node | None) -> SafeString:
    lines = [line for grant in layout.grants for line in _lines(grant, layout)]
    nodes = [(each, box) for each, box in layout.boxes.items() if isinstance(each, Node)]
    drawn = [_drawn(node, box, link(node), node == meant) for node, box in nodes]
    return format_html_join("", "{}", ((each,) for each in (*lines, *drawn)))


# ---- a file of its own -----------------------------------------------------------------------------------------

_STYLE = mark_safe(
    "svg{background:#fff}text{fill:#1f2328;font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    "text.heading{font:600 16px system-ui,sans-serif}text.owner{fill:#59636e;font:10px system-ui,sans-serif}"
    "rect{fill:#fff;stroke:#8c959f;stroke-width:1.5}path{fill:none;stroke:#6e7781;stroke-width:1.5}"
    ".ground{fill:#fff;stroke:none}.role rect{fill:#e8f1fd;stroke:#3b7dd8}"
    ".permission rect{fill:#e4f7e6;stroke:#176f2c}.relation rect{fill:#f3ebfc;stroke:#8a4fd0}"
    ".condition rect{stroke-dasharray:4 3}.tip,circle{fill:#6e7781;stroke:none}"
    "@media (prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}text.owner{fill:#9198a1}"
    "rect{fill:#0d1117;stroke:#7d8590}path{stroke:#8b949e}.ground{fill:#0d1117}"
    ".role rect{fill:#12294a;stroke:#6ea8fe}.permission rect{fill:#12341d;stroke:#7ee787}"
    ".relation rect{fill:#2c1a45;stroke:#c297ff}.tip,circle{fill:#8b949e}}"
)
_MARGIN, _HEADING = 24, 34


def document(pictures: Sequence[tuple[str, Layout]]) -> str:
    """Return pictures with headings, one below the other, as an SVG that needs nothing else."""
    widths = [200.0] + [max(layout.width, len(shortened(heading)) * 10.0) for heading, layout in pictures]
    drawn, y = [], _MARGIN
    for heading, layout in pictures:
        drawn.append(_below_heading(shortened(heading), layout, y))
        y += _HEADING + round(layout.height) + _MARGIN
    return format_html(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}">'
        '<style>{2}</style>\n<rect class="ground" width="{0}" height="{1}"/>\n{3}</svg>\n',
        round(max(widths) + 2 * _MARGIN), y, _STYLE, format_html_join("", "{}", ((each,) for each in drawn)),
    )  # fmt: skip


def _below_heading(heading: str, layout: Layout, y: int) -> SafeString:
    return format_html(
        '<g transform="translate({} {})"><text class="heading" y="16">{}</text>'
        '<g transform="translate(0 {})">{}</g></g>\n',
        _MARGIN, y, heading, _HEADING, _drawing(layout, no_link, None),
    )  # fmt: skip


def document_of_sheets(sheets: Sequence[Sheet]) -> str:
    return document([(sheet.title, layout_of_sheet(sheet)) for sheet in sheets])


# ---- strokes -------------------------------------------------------------------------------------------------


def _drawn(node: Node, box: Box, address: str, is_meant: bool) -> SafeString:
    drawn = format_html(
        '<g class="{}{}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="{}"/>{}</g>',
        node.kind,
        " meant" if is_meant else "",
        printable(f"{node.owner}: {node.label}" if node.owner else node.label),
        round(box.x, 1),
        round(box.y, 1),
        round(box.width, 1),
        box.height,
        box.height / 2 if node.kind == "role" else 4,
        _texts(node, box),
    )
    return format_html('<a href="{}">{}</a>', address, drawn) if address else drawn


def _texts(node: Node, box: Box) -> SafeString:
    middle, x = box.y + box.height / 2, round(box.x + PADDING, 1)
    if not node.owner:
        return format_html('<text x="{}" y="{}">{}</text>', x, round(middle + 4.5, 1), text_of(node))
    owner = format_html('<text class="owner" x="{}" y="{}">{}</text>', x, round(middle - 5, 1), shortened(node.owner))
    return format_html('{}<text x="{}" y="{}">{}</text>', owner, x, round(middle + 11, 1), text_of(node))


def _lines(grant: Grant, layout: Layout) -> list[SafeString]:
    """Draw a grant: a line from its source to its target.

    If several sources must hold together, draw a line from each to a dot, and one from the dot to the target.
    """
    target = layout.boxes[grant.target].left
    title = printable(f"line {grant.line}: {grant.text}")
    if len(grant.sources) == 1:
        return [_line(grant.sources[0], grant.target, target, True, title, layout)]
    last = [layout.boxes[route(source, grant.target, layout.ranks)[-2]] for source in grant.sources]
    dot = (target[0] - 26, (sum(box.right[1] for box in last) / len(last) + target[1]) / 2)
    joined = [_line(source, grant.target, dot, False, title, layout) for source in grant.sources]
    drawn = format_html('<circle cx="{}" cy="{}" r="4"><title>{}</title></circle>', *_rounded(dot), title)
    return [*joined, _stroke([dot, target], title, True), drawn]


def _line(
    source: Node, target: Node, end: tuple[float, float], is_last: bool, title: str, layout: Layout
) -> SafeString:
    ranks, boxes = layout.ranks, layout.boxes
    if ranks[source] >= ranks[target]:  # a cycle of rules: the line goes back below the boxes
        return _back(boxes[source], boxes[target], title)
    points = [boxes[source].right]
    for lane in route(source, target, ranks)[1:-1]:
        assert isinstance(lane, Lane)
        points += [boxes[lane].left, boxes[lane].right]
    return _stroke([*points, end], title, is_last)


def _stroke(points: list[tuple[float, float]], title: str, is_last: bool) -> SafeString:
    shape = "M{} {}".format(*_rounded(points[0]))
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        middle = x + (to_x - x) / 2
        shape += "C{} {} {} {} {} {}".format(*_rounded((middle, y, middle, to_y, to_x, to_y)))
    return _path(shape, title, points[-1] if is_last else None)


def _back(source: Box, target: Box, title: str) -> SafeString:
    low = max(source.y + source.height, target.y + target.height, HEIGHT) + 10
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
