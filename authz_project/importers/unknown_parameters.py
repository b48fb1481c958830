"""Checks that tuples give values to parameters that their conditions have: a misspelt name would bind nothing."""

from __future__ import annotations

from collections.abc import Iterator

from authz_project.importers.model import Imported, Tuple
from authz_project.importers.report import Fault, ImportRejected


def check_parameters(imported: Imported) -> None:
    """Raise ImportRejected with every value whose parameter the condition does not have."""
    parameters = {each.name: {one.name for one in each.parameters} for each in imported.model.conditions}
    faults = [
        Fault(each.place, f"the tuple {each}: condition {each.condition} has no parameter `{name}`; take it away")
        for each in _tuples(imported)
        for name, _ in each.values
        if each.condition in parameters and name not in parameters[each.condition]
    ]
    if faults:
        raise ImportRejected(faults)


def _tuples(imported: Imported) -> Iterator[Tuple]:
    yield from imported.tuples
    for scenario in imported.scenarios:
        yield from scenario.tuples
