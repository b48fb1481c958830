"""Decide how the model is expressed: which types are actors, what is a role, permission or relation, and the names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from authz_project.importers.model import (
    Computed,
    ImportReport,
    Itself,
    Model,
    ModelCondition,
    ModelRelation,
    Subject,
    Type,
    leaves,
    relations_of,
)
from authz_project.importers.polar.relations import RelationKey, SeparatedRelations, taken_apart
from policy.values import ABSTRACT, PRIMITIVES

# ---- names --------------------------------------------------------------------------------------------------------
# Names that Polar can say. Roles and permissions are texts, which can be anything; the rest are words.

_RESERVED = {
    "if", "iff", "and", "or", "not", "in", "on", "matches", "true", "false", "cut", "debug", "print", "forall", "of",
    "_",
}  # fmt: skip
PREDICATES = {
    "allow", "has_role", "has_permission", "has_relation", "has_group", "is_public", "has_role_if", "has_relation_if",
    "is_public_if", "parameter", "value_of", "context", "fails",
}  # fmt: skip
HELD_VARIABLES = {"actor", "resource", "when", "role", "permission", "global"}  # what rules call something else
USERSET = "userset"
_NOT_IN_WORDS = re.compile(r"[^0-9A-Za-z_\u0080-\U0010ffff]")


def word(name: str) -> str:
    """Return the name as a word: what Polar cannot say becomes `_`."""
    text = _NOT_IN_WORDS.sub("_", name)
    if not text or text[0].isdigit():
        text = f"_{text}"
    return f"{text}_" if text in _RESERVED else text


def type_word(name: str) -> str:
    text = word(name)
    return f"{text}_" if text in (*PRIMITIVES, *ABSTRACT) else text


def unused(name: str, taken: set[str]) -> str:
    """Return the name, or one like it that is free; from then on it is taken."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def unused_start(text: str, names: set[str]) -> str:
    """Return the text, or one like it that none of the names begins with."""
    while any(name.startswith(text) for name in names):
        text += "_"
    return text


def variable(name: str, *, besides: frozenset[str] | set[str] = frozenset()) -> str:
    """Return a variable that is called as something else is."""
    text = word(name)
    while text in HELD_VARIABLES or text in besides:
        text += "_"
    return text


# ---- layout -------------------------------------------------------------------------------------------------------
# Settles how everything is said: which types act, what is a role, a permission or a relation, and under which name.
#
# | theirs | here |
# |---|---|
# | `viewer: [user]` | a role: `has_role(user, "viewer", document)` |
# | `viewer: editor` | a permission: `"viewer" if "editor";` |
# | `parent: [folder]`, used as `… from parent` | a relation: `has_relation(document, "parent", folder)` |
# | `viewer: [group#member]` | a relation to the group, and `"viewer" if "member" on "viewer_group";` |
# | `viewer: [user:*]` | `is_public(document, "viewer")` |


class RelationKind(Enum):
    ROLE = "role"
    PERMISSION = "permission"
    RELATION = "relation"


class PolarName(NamedTuple):
    """What a relation is here, and how it is called."""

    kind: RelationKind
    name: str


class RelationStep(NamedTuple):
    """A relation that leads from an object to others: its name here, and the type there, as the model calls it."""

    name: str
    target: str


@dataclass(frozen=True)
class PolicyLayout:
    apart: SeparatedRelations
    types: dict[str, str]  # the names here, by the model's
    actors: frozenset[str]
    relation_names: dict[RelationKey, PolarName]
    userset_names: dict[tuple[str, str, str, str], str]  # by type, relation, and the userset's type and relation
    conditions: dict[str, str]
    userset_type: str
    clock: frozenset[str] = frozenset()  # the parameters that are the service's clock

    @cached_property
    def possibly(self) -> str:
        """Return what stands before the name of a relation in its widest sense: no name of the model begins with it."""
        names = {each.name for each in self.relation_names.values()} | {*self.userset_names.values()}
        return unused_start("possibly_", names)

    @cached_property
    def relations(self) -> dict[RelationKey, ModelRelation]:
        return {(type_.name, each.name): each for type_, each in relations_of(self.model)}

    @property
    def model(self) -> Model:
        return self.apart.model

    def condition(self, name: str) -> ModelCondition:
        return next(each for each in self.model.conditions if each.name == name)

    def is_leading(self, type_name: str, relation: str) -> bool:
        return (type_name, relation) in self.apart.leading

    def targets(self, type_name: str, relation: str) -> tuple[str, ...]:
        """Return the types of the objects that a relation leads to, each once."""
        return tuple(dict.fromkeys(each.type for each in self.relations[type_name, relation].subjects))

    def is_simple(self, type_name: str, relation: str) -> bool:
        """Say whether a relation leads to one type, so that its block can declare it."""
        return len(self.targets(type_name, relation)) == 1

    def usersets(self, type_name: str, relation: str) -> Iterator[tuple[RelationStep, Subject]]:
        """Yield the usersets among a relation's subjects, each with the relation that it is stored as."""
        for subject in self.relations[type_name, relation].subjects:
            if subject.relation:
                name = self.userset_names[type_name, relation, subject.type, subject.relation]
                yield RelationStep(name, subject.type), subject

    def steps(self, type_name: str, tupleset: str) -> list[RelationStep]:
        """Return what an arrow follows: the relations to objects, and those to usersets."""
        found: list[RelationStep] = []
        plain = self.apart.home(type_name, tupleset, True)
        if self.is_leading(type_name, plain):
            name = self.relation_names[type_name, plain].name
            found += [RelationStep(name, target) for target in self.targets(type_name, plain)]
        other = self.apart.home(type_name, tupleset, False)
        if (type_name, other) in self.relations:
            found += [step for step, _ in self.usersets(type_name, other)]
        return list(dict.fromkeys(found))

    def public_types(self, type_name: str, relation: str) -> tuple[str, ...]:
        subjects = self.relations[type_name, relation].subjects
        return tuple(dict.fromkeys(each.type for each in subjects if each.wildcard))


def layout_of(model: Model, report: ImportReport, clock: frozenset[str] = frozenset()) -> PolicyLayout:
    apart = taken_apart(model)
    _report_apart(model, apart, report)
    types = _type_names(apart.model, report)
    taken = {*types.values(), *PREDICATES}
    userset_type = unused(USERSET, taken)
    conditions = {each.name: unused(type_word(each.name), taken) for each in apart.model.conditions}
    relation_names: dict[RelationKey, PolarName] = {}
    usersets: dict[tuple[str, str, str, str], str] = {}
    for type_ in apart.model.types:
        _name_relations(type_, apart, relation_names, usersets, report)
    return PolicyLayout(apart, types, _actors(apart), relation_names, usersets, conditions, userset_type, clock)


def _report_apart(model: Model, apart: SeparatedRelations, report: ImportReport) -> None:
    places = {(type_.name, each.name): each.place for type_, each in relations_of(model)}
    for (type_name, relation), name in {**apart.other_homes, **apart.plain_homes}.items():
        message = f"tuples of {type_name}#{relation} are stored as `{name}`, from which `{relation}` follows"
        report.changed(places[type_name, relation], message)


def _type_names(model: Model, report: ImportReport) -> dict[str, str]:
    taken: set[str] = set()
    names: dict[str, str] = {}
    for type_ in sorted(model.types, key=lambda each: type_word(each.name) != each.name):  # those that fit come first
        names[type_.name] = unused(type_word(type_.name), taken)
        if names[type_.name] != type_.name:
            report.changed(type_.place, f"the type {type_.name} is called `{names[type_.name]}` here")
    return names


def _name_relations(
    type_: Type,
    apart: SeparatedRelations,
    relation_names: dict[RelationKey, PolarName],
    usersets: dict[tuple[str, str, str, str], str],
    report: ImportReport,
) -> None:
    taken = {each.name for each in type_.relations}
    for relation in type_.relations:
        key = (type_.name, relation.name)
        if key in apart.leading:
            name = word(relation.name)
            if name != relation.name:
                name = unused(name, taken)
                report.changed(relation.place, f"{type_.name}#{relation.name} is called `{name}` here")
            relation_names[key] = PolarName(RelationKind.RELATION, name)
        else:
            relation_names[key] = PolarName(
                RelationKind.ROLE if relation.subjects else RelationKind.PERMISSION, relation.name
            )
    for relation in type_.relations:
        for subject in relation.subjects:
            place = (type_.name, relation.name, subject.type, subject.relation or "")
            if subject.relation and place not in usersets:
                usersets[place] = unused(_userset_name(relation, subject), taken)


def _userset_name(relation: ModelRelation, subject: Subject) -> str:
    """Return `viewer_group` for `viewer: [group#member]`; with several relations of groups, `viewer_group_member`."""
    alike = {each.relation for each in relation.subjects if each.type == subject.type and each.relation}
    parts = [relation.name, subject.type, *([subject.relation or ""] if len(alike) > 1 else [])]
    return word("_".join(parts))


def _actors(apart: SeparatedRelations) -> frozenset[str]:
    """Return the types whose objects can be subjects of anything but a relation that is just followed."""
    found: set[str] = set()
    asked: set[RelationKey] = set()
    for type_, relation in relations_of(apart.model):
        is_leading = (type_.name, relation.name) in apart.leading
        found |= {each.type for each in relation.subjects if not is_leading and not each.relation}
        asked |= {(each.type, each.relation) for each in relation.subjects if each.relation}
        for leaf, _ in leaves(relation.expression):
            if isinstance(leaf, Itself):
                found.add(type_.name)
            if isinstance(leaf, Computed):
                asked.add((type_.name, leaf.relation))
    for type_, relation in relations_of(apart.model):
        if (type_.name, relation.name) in apart.leading & asked or _is_arrived_at(apart, type_.name, relation.name):
            found |= {each.type for each in relation.subjects}
    if not found:
        found = {type_.name for type_ in apart.model.types if not type_.relations} or {
            type_.name for type_ in apart.model.types
        }
    return frozenset(found)


def _is_arrived_at(apart: SeparatedRelations, type_name: str, relation: str) -> bool:
    """Say whether an arrow ends at a relation that is itself followed elsewhere."""
    if (type_name, relation) not in apart.leading:
        return False
    return any(
        getattr(leaf, "tupleset", None) is not None and getattr(leaf, "relation", None) == relation
        for _, each in relations_of(apart.model)
        for leaf, _ in leaves(each.expression)
    )
