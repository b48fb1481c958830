"""Checks that no tuple is there twice with different conditions, values or ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from authz_project.importers.model import Imported, Tuple
from authz_project.importers.report import Fault, ImportRejected


def check_duplicates(imported: Imported) -> None:
    """Raise ImportRejected with each tuple that another contradicts: as facts, both would count."""
    found = [*_faults(imported.tuples)]
    for scenario in imported.scenarios:
        found += _faults((*imported.tuples, *scenario.tuples))
    if found:
        raise ImportRejected(dict.fromkeys(found))


def _faults(tuples: Iterable[Tuple]) -> Iterator[Fault]:
    known: dict[tuple[object, ...], Tuple] = {}
    for each in tuples:
        first = known.setdefault((each.object, each.relation, each.subject), each)
        if _bound(each) != _bound(first):
            where = f", first at {first.place}" if any(first.place) else ""
            message = f"the tuple {each} is there twice, with different conditions, values or ends{where}"
            yield Fault(each.place, message)


def _bound(tuple_: Tuple) -> tuple[object, ...]:
    values = sorted((name, type(value).__name__, repr(value)) for name, value in tuple_.values)
    return tuple_.condition, values, tuple_.expiry
