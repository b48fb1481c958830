"""Only what leads to one role or permission: the rules walked backwards, from type to type.

A condition with `not` is drawn with its rule, but the walk does not go on from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from checks.workbench.graph import ANY_NAME, GLOBAL, Grant, Graph, Node, Sheet
from checks.workbench.needs import Need
from policy.errors import NotFound
from policy.language.source import Span
from policy.rules.declarations import did_you_mean, listed

_Place = tuple[str | None, str, str]  # a type, `role` or `permission`, and the name, or any


@dataclass(frozen=True, slots=True)
class Leading:
    """What leads to `target`: sheets with nothing else on them, that of the target first and the furthest last."""

    target: str  # as `Repo.read`
    sheets: tuple[Sheet, ...]
    others: tuple[tuple[int, str, Span], ...]  # rules on no sheet that are on the way
    start: Node


def targets(graph: Graph) -> list[str]:
    """Return the roles and permissions to ask `leading_to` for, as `Repo.read`, permissions first."""
    sheets = graph.sheets.values()
    return [f"{each.name}.{name}" for each in sheets for name in each.permissions] + [
        f"{each.name}.{name}" for each in sheets for name in each.roles
    ]


def sheet_named(graph: Graph, name: str) -> Sheet:
    found = graph.sheets.get(None if name == GLOBAL else name) or graph.sheets.get(name)
    if found is None:
        names = [each.name for each in graph.sheets.values()]
        raise NotFound(f"the policy has no type `{name}`{_instead(name, names)}")
    return found


def leading_to(graph: Graph, target: str) -> Leading:
    type_name, _, name = target.partition(".")
    sheet = sheet_named(graph, type_name)
    kinds = [kind for kind in ("permission", "role") if name in _names(sheet, kind)]
    if not kinds:
        names = [*sheet.permissions, *sheet.roles]
        raise NotFound(f"`{sheet.name}` has no role or permission `{name}`{_instead(name, names)}")
    kept = _walked(graph, [(sheet.type, kind, name) for kind in kinds])
    sheets = tuple(_narrowed(graph.sheets[each], places) for each, places in kept.items())
    through = {span for each in sheets for grant in each.grants for span in grant.through}
    others = tuple(each for each in graph.others if each[2] in through)
    return Leading(f"{sheet.name}.{name}", sheets, others, Node(kinds[0], name))


def _names(sheet: Sheet, kind: str) -> set[str]:
    declared = sheet.roles if kind == "role" else sheet.permissions
    return {*declared, *(grant.target.label for grant in sheet.grants if grant.target.kind == kind)} - {ANY_NAME}


def _instead(name: str, names: list[str]) -> str:
    meant = did_you_mean(name, names)
    known = f"there are {listed(names)}" if names else "there is none"
    return f" ({meant} {known})" if meant else f" ({known})"


def _walked(graph: Graph, start: list[_Place]) -> dict[str | None, list[_Place]]:
    """Return the places that lead to the start, by type; the types are in the order in which the walk meets them."""
    found: dict[str | None, list[_Place]] = {}
    seen, waiting = set(start), list(start)
    for place in waiting:  # the loop adds to it
        found.setdefault(place[0], []).append(place)
        for following in _before(graph, place):
            if following not in seen and following[0] in graph.sheets:
                seen.add(following)
                waiting.append(following)
    return found


def _before(graph: Graph, place: _Place) -> Iterator[_Place]:
    for grant in _granting(graph.sheets[place[0]], place):
        for need in grant.needs:
            for type_name in need.types:
                yield type_name, need.kind, _name_of(need, place[2])


def _name_of(need: Need, asked: str) -> str:
    return asked if need.is_same else need.name


def _granting(sheet: Sheet, place: _Place) -> Iterator[Grant]:
    _, kind, name = place
    for grant in sheet.grants:
        if grant.target.kind == kind and (name == ANY_NAME or grant.target.label in (name, ANY_NAME)):
            yield grant


def _narrowed(sheet: Sheet, places: list[_Place]) -> Sheet:
    """Return the sheet with only the grants of these places; a rule about every name becomes one about their names."""
    grants = dict.fromkeys(_as_asked(grant, place[2]) for place in places for grant in _granting(sheet, place))
    wanted = {(kind, name) for _, kind, name in places}
    used = {node.label.partition(" on ")[2] or node.label for grant in grants for node in grant.sources}
    return Sheet(
        sheet.type,
        tuple(name for name in sheet.roles if {("role", name), ("role", ANY_NAME)} & wanted),
        tuple(name for name in sheet.permissions if {("permission", name), ("permission", ANY_NAME)} & wanted),
        tuple(each for each in sheet.relations if each[0] in used),
        tuple(grants),
        sheet.hidden,
    )


def _as_asked(grant: Grant, name: str) -> Grant:
    """Return a rule about every name as one about this name."""
    if grant.target.label != ANY_NAME or name == ANY_NAME:
        return grant
    target, sources = replace(grant.target, label=name), grant.sources
    if any(need.is_same for need in grant.needs):
        sources = tuple(_node_as_asked(node, name) for node in sources)
    needs = tuple(_need_as_asked(each, name) for each in grant.needs)
    return replace(grant, sources=sources, target=target, needs=needs)


def _need_as_asked(need: Need, name: str) -> Need:
    return replace(need, name=_name_of(need, name), is_same=False)


def _node_as_asked(node: Node, name: str) -> Node:
    needs = tuple(_need_as_asked(need, name) for need in node.needs)
    if node.label == ANY_NAME:
        return replace(node, label=name, needs=needs)
    if node.label.startswith(f"{ANY_NAME} on "):
        return replace(node, label=f"{name}{node.label[len(ANY_NAME) :]}", needs=needs)
    return replace(node, needs=needs)


# ---- all of it in one picture --------------------------------------------------------------------------------------


def joined(sheets: Sequence[Sheet]) -> tuple[Grant, ...]:
    """Return the grants of all sheets, with the owners of nodes, and grants that lead from one sheet to another.

    On the sheet of a Repo:   [member on org] -> reader
    Joined:                   Org: member -> Repo: [member on org] -> Repo: reader
    """
    drawn = {sheet.type for sheet in sheets}
    found: dict[Grant, None] = {}
    for sheet in sheets:
        for grant in sheet.grants:
            sources = tuple(replace(node, owner=sheet.title) for node in grant.sources)
            found[replace(grant, sources=sources, target=replace(grant.target, owner=sheet.title))] = None
            for node in sources:
                for need in node.needs:
                    found |= dict.fromkeys(_bridge(grant, node, need, name) for name in need.types if name in drawn)
    return tuple(found)


def _bridge(grant: Grant, node: Node, need: Need, type_name: str | None) -> Grant:
    owner = "Global" if type_name is None else type_name
    return Grant((Node(need.kind, need.name, owner),), node, grant.line, grant.text)
