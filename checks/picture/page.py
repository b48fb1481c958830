"""The page of the diagram."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
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
from policy.pages.highlight import highlighted_lines
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


@dataclass(frozen=True, slots=True)
class TypeLink:
    title: str
    address: str
    sheet: Sheet


@dataclass(frozen=True, slots=True)
class Drawn:
    """A sheet with its picture, and links to others: of its relations, and `across` with a title and how many more."""

    sheet: Sheet
    address: str
    picture: SafeString
    relations: tuple[tuple[str, TypeLink | None, str], ...]
    across: tuple[tuple[str, tuple[TypeLink, ...], int], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """A type in a search result, matched by its name or by its `nodes`: kind, name and URL of each match."""

    type: TypeLink
    nodes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class PicturePage:
    asked: PictureRequest
    types: int
    targets: tuple[str, ...] = ()
    index: tuple[TypeLink, ...] = ()
    hits: tuple[Hit, ...] | None = None
    hidden_hits: int = 0
    drawn: tuple[Drawn, ...] = ()
    whole: SafeString | None = None  # all that leads to a permission, in one picture
    leading: Leading | None = None
    rules: tuple[tuple[int, SafeString], ...] = ()
    hidden_rules: int = 0
    trouble: str = ""

    @property
    def exports(self) -> tuple[tuple[str, str], ...]:
        """Return the file formats of the picture, each with its download URL."""
        what = PictureRequest(type=self.asked.type, leads_to=self.asked.leads_to)
        return tuple((name, what.address(format=kind)) for name, kind in (("SVG", "svg"), ("Mermaid", "mermaid")))

    @property
    def sizes(self) -> list[tuple[str, str, bool]]:
        """Return each size with its URL, and whether it is the present one."""
        names = {size: "Fit" if size == FIT else f"{size} %" for size in SIZES}
        return [(name, self.asked.address(size=size), size == self.asked.size) for size, name in names.items()]

    @property
    def is_index(self) -> bool:
        """Return whether there are too many types to draw them all."""
        return bool(self.index) and not self.drawn


# ---- contents ----------------------------------------------------------------------------------------------------


def picture_page(program: Program, asked: PictureRequest) -> PicturePage:
    graph = graph_of(program)
    page = PicturePage(asked, len(graph.sheets), tuple(targets(graph)[:MOST_TARGETS]))
    try:
        if asked.leads_to:
            return _led(page, graph)
        if asked.type:
            return replace(page, drawn=(_drawn(graph, sheet_named(graph, asked.type), asked),))
        return _found(page, graph) if asked.q else _whole(page, graph)
    except AuthzError as reason:
        return replace(_whole(page, graph), trouble=reason.message)


def _whole(page: PicturePage, graph: Graph) -> PicturePage:
    sheets = tuple(graph.sheets.values())
    rules, hidden = _rules(graph.others)
    few = len(sheets) <= MOST_DRAWN and sum(len(each.grants) for each in sheets) <= MOST_GRANTS
    drawn = tuple(_drawn(graph, each, page.asked) for each in sheets) if few else ()
    index = tuple(_type_link(page.asked, each) for each in sheets)
    return replace(page, index=index, drawn=drawn, rules=rules, hidden_rules=hidden)


def _led(page: PicturePage, graph: Graph) -> PicturePage:
    """Show what leads to the target: in one picture if that is not too large, else in sheets."""
    asked = page.asked
    leading = leading_to(graph, asked.leads_to)
    rules, hidden = _rules(leading.others)
    page = replace(page, leading=leading, rules=rules, hidden_rules=hidden)
    index = tuple(_type_link(asked, each, leads_to=leading.target) for each in leading.sheets)
    if asked.type:
        sheets = [each for each in leading.sheets if each.name == asked.type]
    else:
        layout = one_layout(leading)
        if layout is not None:
            start = replace(leading.start, owner=leading.sheets[0].title)
            title = f"What grants {leading.target}"
            whole = drawing.picture_of(layout, title, partial(_link_of_owned, asked), start, asked.percent)
            return replace(page, index=index, whole=whole)
        sheets = list(leading.sheets[:MOST_DRAWN])
    return replace(page, index=index, drawn=tuple(_drawn(graph, each, asked) for each in sheets))


def one_layout(leading: Leading) -> drawing.GraphLayout | None:
    """Lay out all that leads to the target in one picture; return None if it would be empty or too large."""
    grants = joined(leading.sheets)
    nodes = {node for grant in grants for node in (*grant.sources, grant.target)}
    if not grants or len(nodes) > MOST_JOINED:
        return None
    layout = drawing.layout_of_all(grants, replace(leading.start, owner=leading.sheets[0].title))
    return layout if layout.width <= WIDEST else None


def _found(page: PicturePage, graph: Graph) -> PicturePage:
    """Show the types that match the search, and draw them if there are few."""
    hits = tuple(_hits(graph, page.asked))
    drawn = tuple(_drawn(graph, hit.type.sheet, page.asked) for hit in hits) if len(hits) <= 2 else ()
    return replace(page, hits=hits[:MOST_HITS], hidden_hits=len(hits[MOST_HITS:]), drawn=drawn)


def _hits(graph: Graph, asked: PictureRequest) -> Iterator[Hit]:
    wanted = asked.q.casefold()
    by_name = sorted(graph.sheets.values(), key=lambda sheet: wanted not in sheet.title.casefold())
    for sheet in by_name:
        names = [("role", name) for name in sheet.roles] + [("permission", name) for name in sheet.permissions]
        names += [("relation", name) for name, _ in sheet.relations]
        nodes = tuple(
            (kind, drawing.shortened(name), asked.elsewhere(type=sheet.name, mark=f"{kind}.{name}"))
            for kind, name in names
            if wanted in name.casefold()
        )
        if nodes or wanted in sheet.title.casefold():
            yield Hit(_type_link(asked, sheet), nodes)


def _rules(others: Iterable[tuple[int, str, object]]) -> tuple[tuple[tuple[int, SafeString], ...], int]:
    found = [(line, text) for line, text, _ in others]
    shown = tuple((line, highlighted_lines(drawing.printable(text))[0]) for line, text in found[:MOST_RULES])
    return shown, len(found[MOST_RULES:])


# ---- sheets and links ----------------------------------------------------------------------------------------------


def _drawn(graph: Graph, sheet: Sheet, asked: PictureRequest) -> Drawn:
    title = f"Roles and permissions on {sheet.title}"
    link = partial(_link, graph, sheet, asked)
    picture = drawing.picture_of(drawing.layout_of_sheet(sheet), title, link, asked.meant, asked.percent)
    across = (("Granted through", graph.sources[sheet.type]), ("Grants on", graph.followers[sheet.type]))
    return Drawn(
        sheet,
        asked.elsewhere(type=sheet.name),
        picture,
        tuple((name, _link_to_type(graph, asked, other), other) for name, other in sheet.relations),
        tuple(
            (told, tuple(_type_link(asked, graph.sheets[each]) for each in types[:MOST_LINKS]), len(types[MOST_LINKS:]))
            for told, types in across
            if types
        ),
    )


def _type_link(asked: PictureRequest, sheet: Sheet, **more: str) -> TypeLink:
    return TypeLink(drawing.shortened(sheet.title), asked.elsewhere(type=sheet.name, **more), sheet)


def _link_to_type(graph: Graph, asked: PictureRequest, name: str) -> TypeLink | None:
    return _type_link(asked, graph.sheets[name]) if name in graph.sheets else None


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
