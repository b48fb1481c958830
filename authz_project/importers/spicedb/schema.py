"""Several texts -> one schema: what partials say is put in its place, and every name is one that there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from authz_project.importers.model import Place
from authz_project.importers.report import Fault, ImportRejected
from authz_project.importers.spicedb.syntax import (
    Along,
    Caveat,
    Common,
    Definition,
    Named,
    PartialNamed,
    PermissionDeclared,
    RelationDeclared,
    SchemaText,
    Subject,
    Sum,
    Term,
    Without,
)
from policy.rules.problems import did_you_mean


@dataclass(frozen=True)
class Schema:
    definitions: tuple[Definition, ...]  # without partials: what they say is in those that name them
    caveats: tuple[Caveat, ...]
    comment: tuple[str, ...] = ()


def schema_of(texts: Sequence[SchemaText]) -> Schema:
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
    return Schema(definitions, caveats, tuple(line for text in texts for line in text.comment))


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

    def _of_subject(self, subject: Subject) -> Iterator[Fault]:
        if subject.type not in self.members:
            advice = _meant(subject.type, self.members)
            yield Fault(subject.place, f"there is no definition `{subject.type}`{advice}")
        elif subject.relation and subject.relation not in self.members[subject.type]:
            advice = _meant(subject.relation, self.members[subject.type])
            yield Fault(subject.place, f"`{subject.type}` has no `{subject.relation}`{advice}")
        caveats = [caveat.name for caveat in self.caveats]
        if subject.caveat and subject.caveat not in caveats:
            yield Fault(subject.place, f"there is no caveat `{subject.caveat}`{_meant(subject.caveat, caveats)}")

    def _of_term(self, term: Term, definition: Definition) -> Iterator[Fault]:
        match term:
            case Named(name):
                yield from self._of_name(name, definition, term.place)
            case Along(relation, _):
                yield from self._of_arrow(relation, definition, term.place)
            case Sum(parts) | Common(parts):
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
