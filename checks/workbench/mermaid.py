"""What grants what as Mermaid text, which many programs that show Markdown draw.

A policy's names stand in labels alone, where all but letters, digits and a few signs are escaped by their numbers. The
ids of nodes are made up here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from checks.workbench.graph import Grant, Mark, Sheet
from checks.workbench.layout import shortened, text_of
from checks.workbench.leads import joined

_SHAPES = {"role": ("([", "])"), "permission": ("[", "]"), "relation": ("[/", "/]"), "condition": ("{{", "}}")}
_STROKES = {"role": "#3b7dd8", "permission": "#2da44e", "relation": "#8a4fd0", "condition": "#8c959f"}
_PLAIN = " _.,-=()"  # beside letters and digits


def mermaid(sheets: Sequence[Sheet]) -> str:
    """Return a flowchart with a box for each type."""
    grants = joined(sheets)
    names = {mark: f"n{number}" for number, mark in enumerate(_marks(sheets, grants))}
    lines = ["flowchart LR"]
    owners: dict[str, list[str]] = {}
    for mark, name in names.items():
        owners.setdefault(mark.owner, []).append(_node(mark, name))
    for number, grant in enumerate(grants):
        if len(grant.sources) > 1:
            owners[grant.target.owner].append(f'd{number}(("and"))')
    for number, (owner, nodes) in enumerate(owners.items()):
        lines.append(f'  subgraph t{number}["{_label(shortened(owner))}"]')
        lines += [f"    {node}" for node in nodes]
        lines.append("  end")
    lines += _arrows(grants, names)
    for kind, stroke in _STROKES.items():
        of_kind = [name for mark, name in names.items() if mark.kind == kind]
        if of_kind:
            dashes = ",stroke-dasharray:4 3" if kind == "condition" else ""
            lines.append(f"  classDef {kind} stroke:{stroke},stroke-width:2px{dashes}")
            lines.append(f"  class {','.join(of_kind)} {kind}")
    return "\n".join(lines) + "\n"


def _marks(sheets: Sequence[Sheet], grants: Sequence[Grant]) -> dict[Mark, None]:
    """Return the marks of all declared roles and permissions, and of all grants."""
    found: dict[Mark, None] = {}
    for sheet in sheets:
        found |= dict.fromkeys(Mark("role", name, sheet.title) for name in sheet.roles)
        found |= dict.fromkeys(Mark("permission", name, sheet.title) for name in sheet.permissions)
    for grant in grants:
        found |= dict.fromkeys((*grant.sources, grant.target))
    return found


def _node(mark: Mark, name: str) -> str:
    begin, end = _SHAPES[mark.kind]
    return f'{name}{begin}"{_label(text_of(mark))}"{end}'


def _arrows(grants: Sequence[Grant], names: dict[Mark, str]) -> Iterator[str]:
    for number, grant in enumerate(grants):
        if len(grant.sources) == 1:
            yield f"  {names[grant.sources[0]]} --> {names[grant.target]}"
            continue
        yield f"  d{number} --> {names[grant.target]}"
        for source in grant.sources:
            yield f"  {names[source]} --- d{number}"


def _label(text: str) -> str:
    return "".join(each if each.isalnum() or each in _PLAIN else f"#{ord(each)};" for each in text)
