"""The page of the diagram."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple
from urllib.parse import urlencode

from django.utils.safestring import SafeString

from checks.picture import drawing
from checks.picture.graph import (
    ANY_NAME,
    GLOBAL,
    GLOBAL_TITLE,
    Graph,
    GraphNode,
    Leading,
    Sheet,
    graph_of,
    joined,
    leading_to,
    sheet_named,
    targets,
)
from policy.errors import AuthzError
from policy.rules.program import Program

MOST_DRAWN = 12  # sheets per page
MOST_GRANTS = 240  # on all of them together
MOST_JOINED = 90  # nodes in a picture of several types
WIDEST = 9_000
MOST_HITS = 60  # types in a search result
MOST_LINKS = 12  # from a sheet to others
MOST_TARGETS = 2_000  # completions of the field
MOST_RULES = 300
FIT = "fit"
SIZES = ("50", "75", "100", "150", "200", FIT)
PageContext = dict[str, object]


@dataclass(frozen=True, slots=True)
class PictureRequest:
    """The parameters in the URL. `mark` is the node to highlight, such as `role.owner`."""

    q: str = ""
    type: str = ""
    leads_to: str = ""
    mark: str = ""
    size: str = "100"

    @classmethod
    def of(cls, sent: Mapping[str, str]) -> PictureRequest:
        names = ("q", "type", "leads_to", "mark")
        size = sent.get("size", "")
        return cls(**{name: sent.get(name, "").strip() for name in names}, size=size if size in SIZES else "100")

    @property
    def percent(self) -> int:
        return 100 if self.size == FIT else int(self.size)

    @property
    def meant(self) -> GraphNode | None:
        kind, _, name = self.mark.partition(".")
        return GraphNode(kind, name) if name else None

    def address(self, **changed: str) -> str:
        """Return the URL of the same page with some parameters changed."""
        shown = {name: getattr(self, name) for name in ("q", "type", "leads_to", "mark", "size")} | changed
        return "?" + urlencode({name: text for name, text in shown.items() if text and (name, text) != ("size", "100")})

    def elsewhere(self, **changed: str) -> str:
        """Return the URL of something else at the same scale."""
        return PictureRequest(size=self.size).address(**changed)


# ---- contents ----------------------------------------------------------------------------------------------------


def picture_page(program: Program, asked: PictureRequest) -> PageContext:
    """Return the data for the template: sheets with pictures, or links to them if there are too many to draw."""
    graph = graph_of(program)
    what = PictureRequest(type=asked.type, leads_to=asked.leads_to)
    page: PageContext = {
        "asked": asked,
        "sheets": graph.sheets,
        "targets": targets(graph)[:MOST_TARGETS],
        "exports": [(name, what.address(format=kind)) for kind, name in (("svg", "SVG"), ("mermaid", "Mermaid"))],
        "sizes": [(size, asked.address(size=size)) for size in SIZES],
    }
    try:
        if asked.leads_to:
            return page | _led(graph, asked)
        if asked.type:
            return page | {"drawn": [_drawn(graph, sheet_named(graph, asked.type), asked)]}
        return page | (_found(graph, asked) if asked.q else _whole(graph, asked))
    except AuthzError as reason:
        return page | _whole(graph, asked) | {"trouble": reason.message}


def _whole(graph: Graph, asked: PictureRequest) -> PageContext:
    sheets = list(graph.sheets.values())
    few = len(sheets) <= MOST_DRAWN and sum(len(each.grants) for each in sheets) <= MOST_GRANTS
    drawn = [_drawn(graph, each, asked) for each in sheets] if few else []
    return {"index": sheets, "is_index": bool(sheets) and not few, "drawn": drawn} | _rules(graph.others)


def _led(graph: Graph, asked: PictureRequest) -> PageContext:
    """Show what leads to the target: in one picture if that is not too large, else in sheets."""
    leading = leading_to(graph, asked.leads_to)
    page = {"leading": leading, "index": leading.sheets} | _rules(leading.others)
    layout = None if asked.type else one_layout(leading)
    if layout is not None:
        start = replace(leading.start, owner=leading.sheets[0].title)
        link = partial(_link_of_owned, asked)
        return page | {"whole": drawing.picture_of(layout, f"What grants {leading.target}", link, start, asked.percent)}
    chosen = [each for each in leading.sheets if asked.type in ("", each.name)]
    return page | {"drawn": [_drawn(graph, each, asked) for each in chosen[:MOST_DRAWN]]}


def one_layout(leading: Leading) -> drawing.GraphLayout | None:
    """Lay out all that leads to the target in one picture; return None if it would be empty or too large."""
    grants = joined(leading.sheets)
    nodes = {node for grant in grants for node in (*grant.sources, grant.target)}
    if not grants or len(nodes) > MOST_JOINED:
        return None
    layout = drawing.layout_of_all(grants, replace(leading.start, owner=leading.sheets[0].title))
    return layout if layout.width <= WIDEST else None


def _found(graph: Graph, asked: PictureRequest) -> PageContext:
    """Show the types that match the search, and draw them if there are few."""
    hits = list(_hits(graph, asked.q.casefold()))
    drawn = [_drawn(graph, sheet, asked) for sheet, _ in hits] if len(hits) <= 2 else []
    return {"hits": hits[:MOST_HITS], "hidden_hits": len(hits[MOST_HITS:]), "is_search": True, "drawn": drawn}


def _hits(graph: Graph, wanted: str) -> Iterator[tuple[Sheet, list[tuple[str, str]]]]:
    """Yield the types that match by their names or by names on them, with kind and name of each of the latter."""
    for sheet in sorted(graph.sheets.values(), key=lambda sheet: wanted not in sheet.title.casefold()):
        names = [("role", name) for name in sheet.roles] + [("permission", name) for name in sheet.permissions]
        names += [("relation", name) for name, _ in sheet.relations]
        matches = [(kind, name) for kind, name in names if wanted in name.casefold()]
        if matches or wanted in sheet.title.casefold():
            yield sheet, matches


def _rules(others: Sequence[tuple[int, str, object]]) -> PageContext:
    return {"rules": others[:MOST_RULES], "hidden_rules": len(others[MOST_RULES:])}


# ---- sheets and links ----------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """A sheet with its picture, and others by what they have to do with it: some, and how many more there are."""

    sheet: Sheet
    picture: SafeString
    across: list[tuple[str, list[Sheet], int]]


def _drawn(graph: Graph, sheet: Sheet, asked: PictureRequest) -> Drawn:
    layout, link = drawing.layout_of_sheet(sheet), partial(_link, graph, sheet, asked)
    picture = drawing.picture_of(layout, f"Roles and permissions on {sheet.title}", link, asked.meant, asked.percent)
    across = {"Granted through": graph.sources[sheet.type], "Grants on": graph.followers[sheet.type]}
    found = [
        (told, [graph.sheets[each] for each in types[:MOST_LINKS]], len(types[MOST_LINKS:]))
        for told, types in across.items()
        if types
    ]
    return Drawn(sheet, picture, found)


def _link(graph: Graph, sheet: Sheet, asked: PictureRequest, node: GraphNode) -> str:
    """Return the URL that a node links to: what leads to it, or the sheet of the type that it is on."""
    if node.kind in ("role", "permission"):
        return "" if node.label == ANY_NAME else asked.elsewhere(leads_to=f"{sheet.name}.{node.label}")
    for need in node.needs:
        for other in need.types:
            if other in graph.sheets and (other != sheet.type or len(need.types) == 1):
                found = graph.sheets[other]
                named = "" if need.name == ANY_NAME else f"{need.kind}.{need.name}"
                return asked.elsewhere(type=found.name, mark=named)
    return ""


def _link_of_owned(asked: PictureRequest, node: GraphNode) -> str:
    """Return the URL of the sheet that a node is on, for a picture with nodes of several types."""
    name = GLOBAL if node.owner == GLOBAL_TITLE else node.owner
    return asked.elsewhere(type=name, mark=f"{node.kind}.{node.label}")


# ---- files ---------------------------------------------------------------------------------------------------------

KINDS = {"svg": ("image/svg+xml", "svg"), "mermaid": ("text/plain; charset=utf-8", "mmd")}


def exported(program: Program, kind: str, type_name: str = "", target: str = "") -> str:
    """Return the picture as a file's text: of all types or one, optionally only what leads to a target."""
    graph = graph_of(program)
    if target:
        leading = leading_to(graph, target)
        if type_name:
            sheet_named(graph, type_name)
        sheets = [each for each in leading.sheets if type_name in ("", each.name)]
        layout = None if type_name else one_layout(leading)
        if kind == "svg" and layout is not None:
            return drawing.document([(f"What grants {leading.target}", layout)])
    else:
        sheets = [sheet_named(graph, type_name)] if type_name else list(graph.sheets.values())
    return drawing.document_of_sheets(sheets) if kind == "svg" else drawing.mermaid(sheets)
