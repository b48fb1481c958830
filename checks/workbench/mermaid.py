"""What grants what as Mermaid text, which many programs that show Markdown draw.

A policy's names stand in labels alone, where all but letters, digits and a few signs are escaped by their numbers. The
ids of nodes are made up here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from checks.workbench.backward_slice import joined
from checks.workbench.graph import Grant, Node, Sheet
from checks.workbench.layout import shortened, text_of

_SHAPES = {"role": ("([", "])"), "permission": ("[", "]"), "relation": ("[/", "/]"), "condition": ("{{", "}}")}
_STROKES = {"role": "#3b7dd8", "permission": "#2da44e", "relation": "#8a4fd0", "condition": "#8c959f"}
_PLAIN = " _.,-=()"  # beside letters and digits


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


def _nodes(sheets: Sequence[Sheet], grants: Sequence[Grant]) -> dict[Node, None]:
    """Return the nodes of all declared roles and permissions, and of all grants."""
    found: dict[Node, None] = {}
    for sheet in sheets:
        found |= dict.fromkeys(Node("role", name, sheet.title) for name in sheet.roles)
        found |= dict.fromkeys(Node("permission", name, sheet.title) for name in sheet.permissions)
    for grant in grants:
        found |= dict.fromkeys((*grant.sources, grant.target))
    return found


def _node(node: Node, name: str) -> str:
    begin, end = _SHAPES[node.kind]
    return f'{name}{begin}"{_label(text_of(node))}"{end}'


def _arrows(grants: Sequence[Grant], names: dict[Node, str]) -> Iterator[str]:
    for number, grant in enumerate(grants):
        if len(grant.sources) == 1:
            yield f"  {names[grant.sources[0]]} --> {names[grant.target]}"
            continue
        yield f"  d{number} --> {names[grant.target]}"
        for source in grant.sources:
            yield f"  {names[source]} --- d{number}"


def _label(text: str) -> str:
    return "".join(each if each.isalnum() or each in _PLAIN else f"#{ord(each)};" for each in text)
