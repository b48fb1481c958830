"""The relations whose tuples restrict access: without one of these, more would be granted."""

from __future__ import annotations

from authz_project.importers.model import Arrow, Direct
from authz_project.importers.polar.apart import Apart, Key
from authz_project.importers.polar.certainty import needs
from authz_project.importers.polar.walk import leaves, relations_of


def restrictive_relations(apart: Apart) -> frozenset[Key]:
    """Return the relations that an exclusion subtracts or an `all` arrow follows, and what these depend on."""
    by_key = {(type_.name, relation.name): (type_, relation) for type_, relation in relations_of(apart.model)}
    found: dict[Key, None] = {}
    for key, (type_, relation) in by_key.items():
        found.update({other: None for other, negated in needs(apart, type_, relation) if negated})
        for leaf, negated in leaves(relation.expression):
            if isinstance(leaf, Direct) and negated:
                found[key] = None
            if isinstance(leaf, Arrow) and leaf.every:
                found.update({(type_.name, home): None for home in apart.homes(type_.name, leaf.tupleset)})
    queue = [key for key in found if key in by_key]
    for key in queue:
        more = {other: None for other, _ in needs(apart, *by_key[key]) if other not in found and other in by_key}
        found.update(more)
        queue += more
    return frozenset(found)
