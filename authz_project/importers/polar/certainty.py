"""What follows for sure, and what only perhaps.

A conditional tuple counts if its condition is met. Whether it is may be open: the request left a value out, or Polar
cannot say the condition. Then nobody is granted anything by it. Below an exclusion it is the other way round: somebody
who is *perhaps* blocked is not granted anything, either. So what is taken away is asked for in its widest sense.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from authz_project.importers.model import (
    Arrow,
    Computed,
    Direct,
    Exclusion,
    Expression,
    Intersection,
    Model,
    Place,
    Relation,
    Type,
    Union,
    Unsure,
)
from authz_project.importers.polar.apart import Apart, Key
from authz_project.importers.polar.walk import changed, leaves, relations_of
from authz_project.importers.report import Report
from policy.rules.components import Components


def uncertain_relations(apart: Apart) -> frozenset[Key]:
    """Return the relations that depend on a condition or on an `Unsure`, directly or through other relations."""
    followers: dict[Key, list[Key]] = {}
    found: dict[Key, None] = {}
    for type_, relation in relations_of(apart.model):
        key = (type_.name, relation.name)
        for other, _ in needs(apart, type_, relation):
            followers.setdefault(other, []).append(key)
        if any(each.condition for each in relation.subjects) or _has_unsure(relation.expression):
            found[key] = None
    queue = list(found)
    for key in queue:
        more = [each for each in dict.fromkeys(followers.get(key, ())) if each not in found]
        found.update(dict.fromkeys(more))
        queue += more
    return frozenset(found)


def without_circles(model: Model, report: Report) -> Model:
    """Replace each exclusion or `all` arrow that depends on its own relation by an `Unsure`, which grants nothing.

    Such a model has no stratification: `viewer: member but not viewer`.
    """
    apart = Apart(model)
    types = {type_.name: type_ for type_ in model.types}
    by_key = {(type_.name, each.name): (types[type_.name], each) for type_, each in relations_of(model)}
    edges = {key: sorted({other for other, _ in needs(apart, *found)}) for key, found in by_key.items()}
    components = Components(lambda key: [each for each in edges.get(key, []) if each in by_key])

    def is_circle(key: Key, part: Expression, type_: Type) -> bool:
        number = components.number(key)
        return number is not None and any(
            components.number(other) == number for other in _needed_by_not(apart, type_, by_key[key][1], part)
        )

    def rewritten(type_: Type, relation: Relation) -> Relation:
        key = (type_.name, relation.name)

        def change(part: Expression) -> Expression:
            if not (isinstance(part, Exclusion | Arrow) and is_circle(key, part, type_)):
                return part
            place = next((place for place in _places(part) if any(place)), relation.place)
            what = "what it excludes" if isinstance(part, Exclusion) else "`all`"
            report.lost(place, f"{type_.name}#{relation.name}: {what} depends on the relation itself")
            most = part.base if isinstance(part, Exclusion) else replace(part, every=False)
            return Unsure(most, relation.place)

        return replace(relation, expression=changed(relation.expression, change))

    def rewritten_type(type_: Type) -> Type:
        return replace(type_, relations=tuple(rewritten(type_, each) for each in type_.relations))

    return replace(model, types=tuple(map(rewritten_type, model.types)))


def needs(apart: Apart, type_: Type, relation: Relation) -> Iterator[tuple[Key, bool]]:
    """Yield the relations that one is made of, and whether each is taken away there."""
    for leaf, negated in leaves(relation.expression):
        for key in _keys(apart, type_, relation, leaf):
            yield key, negated


def _needed_by_not(apart: Apart, type_: Type, relation: Relation, part: Expression) -> Iterator[Key]:
    if isinstance(part, Exclusion):
        for leaf, _ in leaves(part.subtract):
            yield from _keys(apart, type_, relation, leaf)
    elif isinstance(part, Arrow) and part.every:
        yield from _keys(apart, type_, relation, part)


def _keys(apart: Apart, type_: Type, relation: Relation, leaf: Expression) -> Iterator[Key]:
    match leaf:
        case Computed(name):
            yield (type_.name, name)
        case Arrow(tupleset, name):
            for home in apart.homes(type_.name, tupleset):
                yield (type_.name, home)
                leading = next((each for each in type_.relations if each.name == home), None)
                for subject in leading.subjects if leading else ():
                    yield (subject.type, name)
        case Direct():
            for subject in relation.subjects:
                if subject.relation:
                    yield (subject.type, subject.relation)


def _has_unsure(expression: Expression) -> bool:
    match expression:
        case Unsure():
            return True
        case Union(parts) | Intersection(parts):
            return any(map(_has_unsure, parts))
        case Exclusion(base, subtract):
            return _has_unsure(base) or _has_unsure(subtract)
    return False


def _places(part: Expression) -> Iterator[Place]:
    for leaf, _ in leaves(part):
        yield getattr(leaf, "place", Place())

