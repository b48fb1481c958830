"""Which usersets permissions pass through: `group#member` if one says `member` there, or `->member` along to it."""

from __future__ import annotations

from collections.abc import Iterator

from authz_project.importers.spicedb.schema import Schema, declared
from authz_project.importers.spicedb.syntax import (
    Along,
    Common,
    Definition,
    Named,
    PermissionDeclared,
    RelationDeclared,
    Sum,
    Term,
    Without,
)

Kind = tuple[str, str | None]  # a type, and the relation of a userset


def passed_through(schema: Schema) -> frozenset[Kind]:
    return frozenset(
        kind
        for definition in schema.definitions
        for member in declared(definition)
        if isinstance(member, PermissionDeclared)
        for kind in _of_term(member.term, definition)
    )


def _of_term(term: Term, definition: Definition) -> Iterator[Kind]:
    match term:
        case Named(name):
            yield definition.name, name
        case Along(relation, target):
            for member in declared(definition):
                if isinstance(member, RelationDeclared) and member.name == relation:
                    yield from ((subject.type, target) for subject in member.subjects)
        case Sum(parts) | Common(parts):
            for part in parts:
                yield from _of_term(part, definition)
        case Without(base, removed):
            yield from _of_term(base, definition)
            yield from _of_term(removed, definition)
