"""What a schema says, as it was written: nothing is looked up here, nothing checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from authz_project.importers.model import NOWHERE, Place
from policy.language.source import Source

# ---- what a permission is made of -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """A relation or permission of the same definition."""

    name: str
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Along:
    """`relation->target`, `relation.any(target)`; `relation.all(target)` where `every`."""

    relation: str
    target: str
    every: bool = False
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Nil:
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Self:
    """The resource itself, as a subject."""

    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Sum:
    parts: tuple[Term, ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Common:
    """`a & b`."""

    parts: tuple[Term, ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Without:
    """`base - removed`."""

    base: Term
    removed: Term
    place: Place = field(default=NOWHERE, compare=False)


Term: TypeAlias = Named | Along | Nil | Self | Sum | Common | Without

# ---- declarations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """What a relation takes: `user`, `user:*`, `group#member`, each perhaps `with caveat and expiration`."""

    type: str
    relation: str = ""
    is_wildcard: bool = False
    caveat: str = ""
    expires: bool = False
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class RelationDeclared:
    name: str
    subjects: tuple[Subject, ...]
    comment: tuple[str, ...] = ()  # its lines, without their marks
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class PermissionDeclared:
    name: str
    term: Term
    comment: tuple[str, ...] = ()  # its lines, without their marks
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class PartialNamed:
    """`...name`: what the partial says is said here."""

    name: str
    place: Place = field(default=NOWHERE, compare=False)


Member: TypeAlias = RelationDeclared | PermissionDeclared | PartialNamed


@dataclass(frozen=True)
class Definition:
    name: str
    members: tuple[Member, ...]
    is_partial: bool = False
    comment: tuple[str, ...] = ()  # its lines, without their marks
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ParameterType:
    """`int`, `list<string>`."""

    name: str
    of: tuple[ParameterType, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}<{', '.join(map(str, self.of))}>" if self.of else self.name


@dataclass(frozen=True)
class Parameter:
    name: str
    type: ParameterType
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Caveat:
    name: str
    parameters: tuple[Parameter, ...]
    source: Source = field(compare=False)
    start: int = field(compare=False)  # where the condition begins in it
    text: str = ""  # of the condition
    comment: tuple[str, ...] = ()  # its lines, without their marks
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Import:
    path: str
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class SchemaText:
    """One file."""

    comment: tuple[str, ...] = ()  # at the start of the file
    definitions: tuple[Definition, ...] = ()
    caveats: tuple[Caveat, ...] = ()
    imports: tuple[Import, ...] = ()
