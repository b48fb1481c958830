"""Resolve a SpiceDB schema, and convert it to the model that all importers share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from authz_project.importers.cel import test_of
from authz_project.importers.files import NotParsed
from authz_project.importers.model import (
    Arrow,
    Computed,
    Direct,
    Exclusion,
    Expression,
    Fault,
    ImportRejected,
    Intersection,
    Itself,
    Model,
    ModelCondition,
    ModelParameter,
    ModelRelation,
    Nothing,
    Place,
    Subject,
    Type,
    Union,
)
from authz_project.importers.spicedb.syntax import (
    Along,
    Caveat,
    Common,
    Definition,
    NamedMember,
    Nil,
    PartialNamed,
    PermissionDeclared,
    RelationDeclared,
    SchemaTerm,
    SchemaText,
    Self,
    SourceError,
    SumTerm,
    Without,
    WrittenSubject,
    place_in,
)
from policy.rules.declarations import did_you_mean

# ---- schema -------------------------------------------------------------------------------------------------------
# Several texts -> one schema: what partials say is put in its place, and every name is one that there is.


@dataclass(frozen=True)
class SpiceDBSchema:
    definitions: tuple[Definition, ...]  # without partials: what they say is in those that name them
    caveats: tuple[Caveat, ...]
    comment: tuple[str, ...] = ()


def schema_of(texts: Sequence[SchemaText]) -> SpiceDBSchema:
    """Put the texts together. Raise `ImportRejected` with all that is wrong."""
    faults: list[Fault] = []
    written = [definition for text in texts for definition in text.definitions]
    caveats = tuple(caveat for text in texts for caveat in text.caveats)
    faults += _repeated([*written, *caveats], "there is another definition, partial or caveat")
    partials = _Partials({each.name: each for each in written if each.is_partial}, faults)
    definitions = tuple(partials.put_into(each) for each in written if not each.is_partial)
    faults += _Names(definitions, caveats).faults()
    if faults:
        raise ImportRejected(sorted(faults, key=lambda fault: fault.place))
    return SpiceDBSchema(definitions, caveats, tuple(line for text in texts for line in text.comment))


def _repeated(
    declared: Iterable[Definition | Caveat | RelationDeclared | PermissionDeclared], what: str
) -> Iterator[Fault]:
    seen: dict[str, Place] = {}
    for each in declared:
        if each.name in seen:
            yield Fault(each.place, f"{what} `{each.name}`, at {seen[each.name]}; rename one of them")
        seen.setdefault(each.name, each.place)


@dataclass
class _Partials:
    by_name: dict[str, Definition]
    faults: list[Fault]

    def put_into(self, definition: Definition) -> Definition:
        members = tuple(self._members(definition, ()))
        self.faults += _repeated(members, f"`{definition.name}` has another")
        return replace(definition, members=members)

    def _members(
        self, definition: Definition, within: tuple[str, ...]
    ) -> Iterator[RelationDeclared | PermissionDeclared]:
        for member in definition.members:
            if not isinstance(member, PartialNamed):
                yield member
            elif member.name in within:
                self.faults.append(Fault(member.place, f"the partial `{member.name}` contains itself; remove this"))
            elif member.name not in self.by_name:
                advice = f"there is no partial `{member.name}`{_meant(member.name, self.by_name)}"
                self.faults.append(Fault(member.place, advice))
            else:
                yield from self._members(self.by_name[member.name], (*within, member.name))


# ---- names ----------------------------------------------------------------------------------------------------------


@dataclass
class _Names:
    definitions: tuple[Definition, ...]
    caveats: tuple[Caveat, ...]
    members: dict[str, dict[str, RelationDeclared | PermissionDeclared]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = {
            definition.name: {member.name: member for member in declared(definition)} for definition in self.definitions
        }

    def faults(self) -> Iterator[Fault]:
        for caveat in self.caveats:
            names = [parameter.name for parameter in caveat.parameters]
            for parameter in caveat.parameters:
                if names.count(parameter.name) > 1:
                    yield Fault(parameter.place, f"`{caveat.name}` has two parameters `{parameter.name}`; rename one")
        for definition in self.definitions:
            for member in declared(definition):
                match member:
                    case RelationDeclared(subjects=subjects):
                        for subject in subjects:
                            yield from self._of_subject(subject)
                    case PermissionDeclared(term=term):
                        yield from self._of_term(term, definition)

    def _of_subject(self, subject: WrittenSubject) -> Iterator[Fault]:
        if subject.type not in self.members:
            advice = _meant(subject.type, self.members)
            yield Fault(subject.place, f"there is no definition `{subject.type}`{advice}")
        elif subject.relation and subject.relation not in self.members[subject.type]:
            advice = _meant(subject.relation, self.members[subject.type])
            yield Fault(subject.place, f"`{subject.type}` has no `{subject.relation}`{advice}")
        caveats = [caveat.name for caveat in self.caveats]
        if subject.caveat and subject.caveat not in caveats:
            yield Fault(subject.place, f"there is no caveat `{subject.caveat}`{_meant(subject.caveat, caveats)}")

    def _of_term(self, term: SchemaTerm, definition: Definition) -> Iterator[Fault]:
        match term:
            case NamedMember(name):
                yield from self._of_name(name, definition, term.place)
            case Along(relation, _):
                yield from self._of_arrow(relation, definition, term.place)
            case SumTerm(parts) | Common(parts):
                for part in parts:
                    yield from self._of_term(part, definition)
            case Without(base, removed):
                yield from self._of_term(base, definition)
                yield from self._of_term(removed, definition)

    def _of_name(self, name: str, definition: Definition, place: Place) -> Iterator[Fault]:
        members = self.members[definition.name]
        if name not in members:
            yield Fault(place, f"`{definition.name}` has no `{name}`{_meant(name, members)}")

    def _of_arrow(self, relation: str, definition: Definition, place: Place) -> Iterator[Fault]:
        match self.members[definition.name].get(relation):
            case None:
                yield from self._of_name(relation, definition, place)
            case PermissionDeclared():
                yield Fault(place, f"an arrow starts from a relation, and `{relation}` is a permission")
            case RelationDeclared(subjects=subjects):
                for subject in subjects:
                    if subject.is_wildcard:
                        yield Fault(place, f"no arrow leads along `{relation}`, which takes `{subject.type}:*`")


def declared(definition: Definition) -> Iterator[RelationDeclared | PermissionDeclared]:
    """Yield what a definition has, once partials are put into it."""
    for member in definition.members:
        assert not isinstance(member, PartialNamed)
        yield member


def _meant(name: str, known: Iterable[str]) -> str:
    meant = did_you_mean(name, known)
    return f"; {meant}" if meant else ""


# ---- passed usersets ----------------------------------------------------------------------------------------------
# Which usersets permissions pass through: `group#member` if one says `member` there, or `->member` along to it.

SubjectKind = tuple[str, str | None]  # a type, and the relation of a userset


def passed_through(schema: SpiceDBSchema) -> frozenset[SubjectKind]:
    return frozenset(
        kind
        for definition in schema.definitions
        for member in declared(definition)
        if isinstance(member, PermissionDeclared)
        for kind in _of_term(member.term, definition)
    )


def _of_term(term: SchemaTerm, definition: Definition) -> Iterator[SubjectKind]:
    match term:
        case NamedMember(name):
            yield definition.name, name
        case Along(relation, target):
            for member in declared(definition):
                if isinstance(member, RelationDeclared) and member.name == relation:
                    yield from ((subject.type, target) for subject in member.subjects)
        case SumTerm(parts) | Common(parts):
            for part in parts:
                yield from _of_term(part, definition)
        case Without(base, removed):
            yield from _of_term(base, definition)
            yield from _of_term(removed, definition)


# ---- A schema -> the form that all importers share ----------------------------------------------------------------


def model_of(schema: SpiceDBSchema) -> Model:
    """Translate the schema. Raise `SourceError` where a caveat's condition is none."""
    types = tuple(map(_type, schema.definitions))
    return Model(types, tuple(map(condition_of, schema.caveats)), schema.comment)


def condition_of(caveat: Caveat) -> ModelCondition:
    def place_of(offset: int) -> Place:
        return place_in(caveat.source, caveat.start + offset)

    parameters = tuple(ModelParameter(each.name, str(each.type), each.place) for each in caveat.parameters)
    try:
        test = test_of(caveat.text, parameters, place_of)
    except NotParsed as wrong:
        raise SourceError(f"the condition of `{caveat.name}`: {wrong.message}", place_of(wrong.at)) from None
    return ModelCondition(caveat.name, parameters, test, caveat.text, caveat.comment, caveat.place)


def _type(definition: Definition) -> Type:
    return Type(definition.name, tuple(map(_relation, declared(definition))), definition.comment, definition.place)


def _relation(member: RelationDeclared | PermissionDeclared) -> ModelRelation:
    if isinstance(member, RelationDeclared):
        subjects = tuple(map(_subject, member.subjects))
        return ModelRelation(member.name, Direct(member.place), subjects, False, member.comment, member.place)
    return ModelRelation(member.name, expression_of(member.term), (), True, member.comment, member.place)


def _subject(written: WrittenSubject) -> Subject:
    return Subject(
        written.type, written.relation or None, written.is_wildcard, written.caveat or None, written.expires,
        written.place,
    )  # fmt: skip


def expression_of(term: SchemaTerm) -> Expression:
    match term:
        case NamedMember(name):
            return Computed(name, term.place)
        case Along(relation, target, every):
            return Arrow(relation, target, every, term.place)
        case Nil():
            return Nothing()
        case Self():
            return Itself(term.place)
        case SumTerm():
            return Union(tuple(map(expression_of, _parts(term, SumTerm))))
        case Common():
            return Intersection(tuple(map(expression_of, _parts(term, Common))))
        case Without(base, removed):
            return Exclusion(expression_of(base), expression_of(removed))
    raise AssertionError(term)


def _parts(term: SchemaTerm, kind: type[SumTerm | Common]) -> Iterator[SchemaTerm]:
    """Yield the parts of a sum: `(a + b) + c` has three."""
    if isinstance(term, kind):
        for part in term.parts:
            yield from _parts(part, kind)
    else:
        yield term
