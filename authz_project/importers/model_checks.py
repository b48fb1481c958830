"""Checks that a model makes sense: every name is there, and once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from authz_project.importers.model import Arrow, Computed, Condition, Model, Place, Relation, Subject, Type
from authz_project.importers.polar.walk import leaves
from authz_project.importers.report import Fault, ImportRejected


def check_model(model: Model) -> None:
    """Raise ImportRejected with all that is wrong."""
    if faults := [*_faults(model)]:
        raise ImportRejected(faults)


def _faults(model: Model) -> Iterator[Fault]:
    yield from _twice("type", ((type_.name, type_.place) for type_ in model.types))
    yield from _twice("condition", ((each.name, each.place) for each in model.conditions))
    types = {type_.name: type_ for type_ in model.types}
    conditions = {each.name: each for each in model.conditions}
    for type_ in model.types:
        yield from _twice(f"relation of {type_.name}", ((each.name, each.place) for each in type_.relations))
        for relation in type_.relations:
            yield from _faults_of(type_, relation, types, conditions)


def _twice(what: str, names: Iterable[tuple[str, Place]]) -> Iterator[Fault]:
    known: set[str] = set()
    for name, place in names:
        if name in known:
            yield Fault(place, f"a second {what} is called {name}")
        known.add(name)


def _faults_of(
    type_: Type, relation: Relation, types: dict[str, Type], conditions: dict[str, Condition]
) -> Iterator[Fault]:
    for subject in relation.subjects:
        yield from _faults_of_subject(subject, types, conditions)
    for leaf, _ in leaves(relation.expression):
        if isinstance(leaf, Computed) and leaf.relation not in _names(type_):
            yield Fault(leaf.place, f"{type_.name} has no relation {leaf.relation}")
        if isinstance(leaf, Arrow):
            yield from _faults_of_arrow(type_, leaf, types)


def _faults_of_subject(subject: Subject, types: dict[str, Type], conditions: dict[str, Condition]) -> Iterator[Fault]:
    if subject.type not in types:
        yield Fault(subject.place, f"there is no type {subject.type}")
    elif subject.relation and subject.relation not in _names(types[subject.type]):
        yield Fault(subject.place, f"{subject.type} has no relation {subject.relation}")
    if subject.condition and subject.condition not in conditions:
        yield Fault(subject.place, f"there is no condition {subject.condition}")


def _faults_of_arrow(type_: Type, arrow: Arrow, types: dict[str, Type]) -> Iterator[Fault]:
    tupleset = next((each for each in type_.relations if each.name == arrow.tupleset), None)
    if tupleset is None:
        yield Fault(arrow.place, f"{type_.name} has no relation {arrow.tupleset}")
        return
    targets = [types[each.type] for each in tupleset.subjects if each.type in types]
    if not tupleset.subjects:
        yield Fault(arrow.place, f"{type_.name}#{arrow.tupleset} has no tuples of its own to follow")
    elif targets and not any(arrow.relation in _names(target) for target in targets):
        yield Fault(arrow.place, f"nothing that {arrow.tupleset} leads to has a relation {arrow.relation}")


def _names(type_: Type) -> set[str]:
    return {each.name for each in type_.relations}
