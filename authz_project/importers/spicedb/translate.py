"""A schema -> the form that all importers share."""

from __future__ import annotations

from collections.abc import Iterator

from authz_project.importers.cel import NotAnExpression, parsed, test_of
from authz_project.importers.model import (
    Arrow,
    Computed,
    Condition,
    Direct,
    Exclusion,
    Expression,
    Intersection,
    Itself,
    Model,
    Nothing,
    Parameter,
    Place,
    Relation,
    Subject,
    Type,
    Union,
)
from authz_project.importers.spicedb.schema import Schema, declared
from authz_project.importers.spicedb.source_errors import SourceError, place_in
from authz_project.importers.spicedb.syntax import (
    Along,
    Caveat,
    Common,
    Definition,
    Named,
    Nil,
    PermissionDeclared,
    RelationDeclared,
    Self,
    Sum,
    Term,
    Without,
)
from authz_project.importers.spicedb.syntax import Subject as SubjectWritten


def model_of(schema: Schema) -> Model:
    """Translate the schema. Raise `SourceError` where a caveat's condition is none."""
    types = tuple(map(_type, schema.definitions))
    return Model(types, tuple(map(condition_of, schema.caveats)), schema.comment)


def condition_of(caveat: Caveat) -> Condition:
    def place_of(offset: int) -> Place:
        return place_in(caveat.source, caveat.start + offset)

    parameters = tuple(Parameter(each.name, str(each.type), each.place) for each in caveat.parameters)
    try:
        test = test_of(parsed(caveat.text), caveat.text, parameters, place_of)
    except NotAnExpression as wrong:
        raise SourceError(f"the condition of `{caveat.name}`: {wrong.message}", place_of(wrong.at)) from None
    return Condition(caveat.name, parameters, test, caveat.text, caveat.comment, caveat.place)


def _type(definition: Definition) -> Type:
    return Type(definition.name, tuple(map(_relation, declared(definition))), definition.comment, definition.place)


def _relation(member: RelationDeclared | PermissionDeclared) -> Relation:
    if isinstance(member, RelationDeclared):
        subjects = tuple(map(_subject, member.subjects))
        return Relation(member.name, Direct(member.place), subjects, False, member.comment, member.place)
    return Relation(member.name, expression_of(member.term), (), True, member.comment, member.place)


def _subject(written: SubjectWritten) -> Subject:
    return Subject(
        written.type, written.relation or None, written.is_wildcard, written.caveat or None, written.expires,
        written.place,
    )  # fmt: skip


def expression_of(term: Term) -> Expression:
    match term:
        case Named(name):
            return Computed(name, term.place)
        case Along(relation, target, every):
            return Arrow(relation, target, every, term.place)
        case Nil():
            return Nothing()
        case Self():
            return Itself(term.place)
        case Sum():
            return Union(tuple(map(expression_of, _parts(term, Sum))))
        case Common():
            return Intersection(tuple(map(expression_of, _parts(term, Common))))
        case Without(base, removed):
            return Exclusion(expression_of(base), expression_of(removed))
    raise AssertionError(term)


def _parts(term: Term, kind: type[Sum | Common]) -> Iterator[Term]:
    """Yield the parts of a sum: `(a + b) + c` has three."""
    if isinstance(term, kind):
        for part in term.parts:
            yield from _parts(part, kind)
    else:
        yield term
