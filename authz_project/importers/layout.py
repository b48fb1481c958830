"""Decide how a model is expressed: split relations until each is either stored or derived; choose kinds and names."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from authz_project.importers import ir
from policy.language.parser import LEGACY, RESERVED
from policy.rules.components import Components, reachable
from policy.values import ABSTRACT, PRIMITIVES

# ---- separating relations, until each is either stored or derived -------------------------------------------------
# `viewer: [user] but not blocked` means two things: who was assigned as a viewer, and who effectively is one. A fact
# with "viewer" would mean the latter. So tuples of such a relation become `direct_viewer`, from which `viewer` is
# derived.

RelationKey = tuple[str, str]  # a type and a relation, named as in the model


@dataclass(frozen=True, slots=True)
class SeparatedRelations:
    """The transformed model, where tuples of separated relations go, and which relations link objects."""

    original: ir.Model
    model: ir.Model
    moved: dict[tuple[str, str, bool], str] = field(default_factory=dict)  # as the parameters of `home`
    leading: set[RelationKey] = field(default_factory=set)

    def home(self, type_name: str, relation: str, is_plain: bool) -> str:
        """Return the relation under which tuples are stored: those with objects, or with usersets and wildcards."""
        return self.moved.get((type_name, relation, is_plain), relation)

    def homes(self, type_name: str, relation: str) -> tuple[str, ...]:
        """Return all relations under which tuples of a relation are stored, for arrows that follow it."""
        return tuple(dict.fromkeys(self.home(type_name, relation, is_plain) for is_plain in (True, False)))


def taken_apart(model: ir.Model) -> SeparatedRelations:
    followed = _between_things(model) | {
        (type_.name, leaf.tupleset)
        for type_, relation in ir.relations_of(model)
        for leaf, _ in ir.leaves(relation.expression)
        if isinstance(leaf, ir.Arrow)
    }
    apart, types = SeparatedRelations(model, model), []
    for type_ in model.types:
        names = {relation.name for relation in type_.relations}
        parts = (part for each in type_.relations for part in _separated(type_.name, each, followed, names, apart))
        types.append(replace(type_, relations=tuple(parts)))
    return replace(apart, model=replace(model, types=tuple(types)))


def _between_things(model: ir.Model) -> set[RelationKey]:
    """Return the relations that link objects although no arrow follows them: `supersedes: [document]`."""
    things = {type_.name for type_ in model.types if type_.relations}
    referenced = _referenced(model)
    return {
        (type_.name, relation.name)
        for type_, relation in ir.relations_of(model)
        if ir.is_direct(relation.expression)
        and all(_is_plain(each) and each.type in things for each in relation.subjects)
        and (type_.name, relation.name) not in referenced
    }


def _referenced(model: ir.Model) -> set[RelationKey]:
    """Return the relations whose subjects are those of other relations, too: of the same object, or as a userset."""
    found: set[RelationKey] = set()
    for type_, relation in ir.relations_of(model):
        found |= {(each.type, each.relation) for each in relation.subjects if each.relation}
        leaves = (leaf for leaf, _ in ir.leaves(relation.expression))
        found |= {(type_.name, leaf.relation) for leaf in leaves if isinstance(leaf, ir.Computed)}
    return found


def _separated(
    type_name: str, relation: ir.ModelRelation, followed: set[RelationKey], names: set[str], apart: SeparatedRelations
) -> list[ir.ModelRelation]:
    """Return the relation, after those that its tuples are moved to."""

    def stored(subjects: tuple[ir.Subject, ...]) -> ir.ModelRelation:
        name = unused(f"direct_{relation.name}", names)
        return ir.ModelRelation(name, ir.Direct(), subjects, place=relation.place)

    if not relation.subjects:
        return [_following(relation, ir.Union(()))]
    key, found = (type_name, relation.name), list[ir.ModelRelation]()
    if key in followed:  # its tuples to objects are separated from usersets and rules
        plain = tuple(each for each in relation.subjects if _is_plain(each))
        others = tuple(each for each in relation.subjects if not _is_plain(each))
        if ir.is_direct(relation.expression) and not others:
            apart.leading.add(key)
            return [relation]
        if plain:
            found.append(stored(plain))
            apart.moved[*key, True] = name = found[0].name
            apart.leading.add((type_name, name))
            relation = _following(relation, ir.Computed(name), others)
    if not relation.subjects or any(map(ir.is_direct, ir.alternatives(relation.expression))):
        return [*found, relation]
    own = stored(relation.subjects)
    apart.moved[*key, False] = own.name
    apart.moved.setdefault((*key, True), own.name)
    return [*found, own, _following(relation, ir.Computed(own.name))]


def _following(
    relation: ir.ModelRelation, instead: ir.Expression, left: tuple[ir.Subject, ...] = ()
) -> ir.ModelRelation:
    """Return the relation with an expression in place of its own tuples, except those whose subjects are left."""
    instead = ir.Union((instead, ir.Direct())) if left else instead
    expression = ir.changed(relation.expression, lambda part: instead if ir.is_direct(part) else part)
    return replace(relation, expression=expression, subjects=left, is_permission=not left)


def _is_plain(subject: ir.Subject) -> bool:
    return not subject.relation and not subject.wildcard


# ---- definite and possible ----------------------------------------------------------------------------------------
# A conditional tuple counts if its condition is met. This may be unknown: the request lacks a value, or Polar cannot
# express the condition. Then the tuple grants nothing. Below an exclusion it is the other way round: somebody who is
# *possibly* blocked is not granted anything, either. So exclusions subtract everything that is possible.


def uncertain_relations(apart: SeparatedRelations) -> frozenset[RelationKey]:
    """Return the relations that depend on a condition or on an `Unsure`, directly or through other relations."""
    followers: dict[RelationKey, list[RelationKey]] = {}
    found: list[RelationKey] = []
    for type_, relation in ir.relations_of(apart.model):
        key = (type_.name, relation.name)
        for other, _ in needs(apart, type_, relation):
            followers.setdefault(other, []).append(key)
        leaves = (leaf for leaf, _ in ir.leaves(relation.expression))
        if any(each.condition for each in relation.subjects) or any(isinstance(leaf, ir.Unsure) for leaf in leaves):
            found.append(key)
    return frozenset(reachable(found, lambda key: followers.get(key, ())))


def without_circles(model: ir.Model, report: ir.ImportReport) -> ir.Model:
    """Replace each exclusion or `all` arrow that depends on its own relation by an `Unsure`, which grants nothing.

    A model with such a cycle has no stratification: `viewer: member but not viewer`.
    """
    apart = SeparatedRelations(model, model)
    types = {type_.name: type_ for type_ in model.types}
    by_key = {(type_.name, each.name): (types[type_.name], each) for type_, each in ir.relations_of(model)}
    edges = {key: sorted({other for other, _ in needs(apart, *found)}) for key, found in by_key.items()}
    components = Components(lambda key: [each for each in edges.get(key, []) if each in by_key])

    def is_circle(key: RelationKey, part: ir.Expression, type_: ir.Type) -> bool:
        number, denies = components.number(key), isinstance(part, ir.Arrow) and part.every
        needed = needs(apart, type_, replace(by_key[key][1], expression=part))
        return number is not None and any(
            components.number(other) == number for other, negated in needed if negated or denies
        )

    def rewritten(type_: ir.Type, relation: ir.ModelRelation) -> ir.ModelRelation:
        key = (type_.name, relation.name)

        def change(part: ir.Expression) -> ir.Expression:
            if not (isinstance(part, ir.Exclusion | ir.Arrow) and is_circle(key, part, type_)):
                return part
            places = (getattr(leaf, "place", ir.NOWHERE) for leaf, _ in ir.leaves(part))
            place = next(filter(any, places), relation.place)
            what = "what it excludes" if isinstance(part, ir.Exclusion) else "`all`"
            report.add(ir.ModelKind.LOST, place, f"{type_.name}#{relation.name}: {what} depends on the relation itself")
            most = part.base if isinstance(part, ir.Exclusion) else replace(part, every=False)
            return ir.Unsure(most, relation.place)

        return replace(relation, expression=ir.changed(relation.expression, change))

    def rewritten_type(type_: ir.Type) -> ir.Type:
        return replace(type_, relations=tuple(rewritten(type_, each) for each in type_.relations))

    return replace(model, types=tuple(map(rewritten_type, model.types)))


def needs(apart: SeparatedRelations, type_: ir.Type, relation: ir.ModelRelation) -> Iterator[tuple[RelationKey, bool]]:
    """Yield the relations that a relation depends on, each with whether it is subtracted there."""
    for leaf, negated in ir.leaves(relation.expression):
        for key in _keys(apart, type_, relation, leaf):
            yield key, negated


def _keys(
    apart: SeparatedRelations, type_: ir.Type, relation: ir.ModelRelation, leaf: ir.Expression
) -> Iterator[RelationKey]:
    match leaf:
        case ir.Computed(name):
            yield (type_.name, name)
        case ir.Arrow(tupleset, name):
            for home in apart.homes(type_.name, tupleset):
                yield (type_.name, home)
                leading = next((each for each in type_.relations if each.name == home), None)
                for subject in leading.subjects if leading else ():
                    yield (subject.type, name)
        case ir.Direct():
            for subject in relation.subjects:
                if subject.relation:
                    yield (subject.type, subject.relation)


# ---- relations whose tuples restrict access: without one of these, more would be granted --------------------------


def restrictive_relations(apart: SeparatedRelations) -> frozenset[RelationKey]:
    """Return the relations that an exclusion subtracts or an `all` arrow follows, and their dependencies."""
    by_key = {(type_.name, relation.name): (type_, relation) for type_, relation in ir.relations_of(apart.model)}
    found: set[RelationKey] = set()
    for key, (type_, relation) in by_key.items():
        found |= {other for other, negated in needs(apart, type_, relation) if negated}
        for leaf, negated in ir.leaves(relation.expression):
            if isinstance(leaf, ir.Direct) and negated:
                found.add(key)
            if isinstance(leaf, ir.Arrow) and leaf.every:
                found |= {(type_.name, home) for home in apart.homes(type_.name, leaf.tupleset)}
    return frozenset(
        reachable(found & by_key.keys(), lambda key: [each for each, _ in needs(apart, *by_key[key]) if each in by_key])
    )


# ---- names --------------------------------------------------------------------------------------------------------
# Names that are valid in Polar. Roles and permissions are strings without restrictions; the others are identifiers.

_RESERVED = {*RESERVED, *LEGACY, "_"}
PREDICATES = {
    "allow", "has_role", "has_permission", "has_relation", "has_group", "is_public", "has_role_if", "has_relation_if",
    "is_public_if", "parameter", "value_of", "context", "fails",
}  # fmt: skip
HELD_VARIABLES = {"actor", "resource", "when", "role", "permission", "global"}  # used in rules with another meaning
USERSET = "userset"
_NOT_IN_WORDS = re.compile(r"[^0-9A-Za-z_\u0080-\U0010ffff]")


def word(name: str) -> str:
    """Return the name as an identifier: invalid characters become `_`."""
    text = _NOT_IN_WORDS.sub("_", name)
    if not text or text[0].isdigit():
        text = f"_{text}"
    return f"{text}_" if text in _RESERVED else text


def type_word(name: str) -> str:
    text = word(name)
    return f"{text}_" if text in (*PRIMITIVES, *ABSTRACT) else text


def unused(name: str, taken: set[str]) -> str:
    """Return the name, with suffixes to make it unused, and add it to `taken`."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def unused_start(text: str, names: set[str]) -> str:
    """Return the text, with suffixes until none of the names begins with it."""
    while any(name.startswith(text) for name in names):
        text += "_"
    return text


def variable(name: str) -> str:
    """Return a variable with this name, or a similar one if it is reserved."""
    text = word(name)
    while text in HELD_VARIABLES:
        text += "_"
    return text


# ---- layout -------------------------------------------------------------------------------------------------------
# Decides how everything is expressed: which types are actors; whether a relation becomes a role, permission or
# relation; and its name.
#
# | original | Polar |
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
    """The kind and name of a relation in Polar."""

    kind: RelationKind
    name: str


class RelationStep(NamedTuple):
    """A relation from one object to others: its name in Polar, and the target type as named in the model."""

    name: str
    target: str


@dataclass(frozen=True)
class PolicyLayout:
    apart: SeparatedRelations
    types: dict[str, str]  # Polar's names by the model's
    actors: frozenset[str]
    relation_names: dict[RelationKey, PolarName]
    userset_names: dict[tuple[str, str, str, str], str]  # by type, relation, and the userset's type and relation
    conditions: dict[str, str]
    userset_type: str
    clock: frozenset[str] = frozenset()  # the parameters to fill from the server's clock

    @cached_property
    def possibly(self) -> str:
        """Return the prefix for the `possible` variants of relations; no other name begins with it."""
        names = {each.name for each in self.relation_names.values()} | {*self.userset_names.values()}
        return unused_start("possibly_", names)

    @cached_property
    def relations(self) -> dict[RelationKey, ir.ModelRelation]:
        return {(type_.name, each.name): each for type_, each in ir.relations_of(self.model)}

    @property
    def model(self) -> ir.Model:
        return self.apart.model

    def condition(self, name: str) -> ir.ModelCondition:
        return next(each for each in self.model.conditions if each.name == name)

    def is_leading(self, type_name: str, relation: str) -> bool:
        return (type_name, relation) in self.apart.leading

    def targets(self, type_name: str, relation: str) -> tuple[str, ...]:
        """Return the types of the objects that a relation leads to, without duplicates."""
        return tuple(dict.fromkeys(each.type for each in self.relations[type_name, relation].subjects))

    def is_simple(self, type_name: str, relation: str) -> bool:
        """Return whether a relation leads to a single type, so that its block can declare it."""
        return len(self.targets(type_name, relation)) == 1

    def steps_of(self, type_name: str, relation: str) -> Iterator[tuple[RelationStep, ir.Subject]]:
        """Yield the usersets among a relation's subjects, and the objects that it leads to, with steps to them."""
        for subject in self.relations[type_name, relation].subjects:
            if subject.relation:
                name = self.userset_names[type_name, relation, subject.type, subject.relation]
                yield RelationStep(name, subject.type), subject
            elif self.is_leading(type_name, relation):
                yield RelationStep(self.relation_names[type_name, relation].name, subject.type), subject

    @cached_property
    def conditions_of_steps(self) -> dict[tuple[str, RelationStep], list[str]]:
        """Return the conditions that tuples of steps may have, by the type that the step begins at."""
        found: dict[tuple[str, RelationStep], dict[str, None]] = {}
        for key in self.relations:
            for step, subject in self.steps_of(*key):
                if subject.condition:
                    found.setdefault((key[0], step), {})[subject.condition] = None
        return {step: [*names] for step, names in found.items()}

    @cached_property
    def uncertain_steps(self) -> frozenset[tuple[str, str]]:
        """Return the types and names of steps that depend on a condition."""
        return frozenset((type_name, step.name) for type_name, step in self.conditions_of_steps)

    def steps(self, type_name: str, tupleset: str) -> list[RelationStep]:
        """Return the relations that an arrow follows, to objects and to usersets."""
        homes = [each for each in self.apart.homes(type_name, tupleset) if (type_name, each) in self.relations]
        return list(dict.fromkeys(step for home in homes for step, _ in self.steps_of(type_name, home)))

    def public_types(self, type_name: str, relation: str) -> tuple[str, ...]:
        subjects = self.relations[type_name, relation].subjects
        return tuple(dict.fromkeys(each.type for each in subjects if each.wildcard))


def layout_of(model: ir.Model, report: ir.ImportReport, clock: frozenset[str] = frozenset()) -> PolicyLayout:
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


def _report_apart(model: ir.Model, apart: SeparatedRelations, report: ir.ImportReport) -> None:
    places = {(type_.name, each.name): each.place for type_, each in ir.relations_of(model)}
    for (type_name, relation, _), name in apart.moved.items():
        message = f"tuples of {type_name}#{relation} are stored as `{name}`, from which `{relation}` follows"
        report.add(ir.ModelKind.CHANGED, places[type_name, relation], message)


def _type_names(model: ir.Model, report: ir.ImportReport) -> dict[str, str]:
    taken: set[str] = set()
    names: dict[str, str] = {}
    for type_ in sorted(model.types, key=lambda each: type_word(each.name) != each.name):  # valid names come first
        names[type_.name] = unused(type_word(type_.name), taken)
        if names[type_.name] != type_.name:
            message = f"type {type_.name} is renamed to `{names[type_.name]}`"
            report.add(ir.ModelKind.CHANGED, type_.place, message)
    return names


def _name_relations(
    type_: ir.Type,
    apart: SeparatedRelations,
    relation_names: dict[RelationKey, PolarName],
    usersets: dict[tuple[str, str, str, str], str],
    report: ir.ImportReport,
) -> None:
    taken = {each.name for each in type_.relations}
    for relation in type_.relations:
        key = (type_.name, relation.name)
        if key in apart.leading:
            name = word(relation.name)
            if name != relation.name:
                name = unused(name, taken)
                message = f"{type_.name}#{relation.name} is renamed to `{name}`"
                report.add(ir.ModelKind.CHANGED, relation.place, message)
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


def _userset_name(relation: ir.ModelRelation, subject: ir.Subject) -> str:
    """Return `viewer_group` for `viewer: [group#member]`; with several relations of groups, `viewer_group_member`."""
    alike = {each.relation for each in relation.subjects if each.type == subject.type and each.relation}
    parts = [relation.name, subject.type, *([subject.relation or ""] if len(alike) > 1 else [])]
    return word("_".join(parts))


def _actors(apart: SeparatedRelations) -> frozenset[str]:
    """Return the types whose objects can be subjects other than in relations that are only followed."""
    found: set[str] = set()
    arrived_at: set[str] = set()  # names of relations that arrows lead to
    for type_, relation in ir.relations_of(apart.model):
        is_leading = (type_.name, relation.name) in apart.leading
        found |= {each.type for each in relation.subjects if not is_leading and not each.relation}
        for leaf, _ in ir.leaves(relation.expression):
            if isinstance(leaf, ir.Itself):
                found.add(type_.name)
            if isinstance(leaf, ir.Arrow):
                arrived_at.add(leaf.relation)
    referenced = _referenced(apart.model)
    for type_, relation in ir.relations_of(apart.model):
        key = (type_.name, relation.name)
        if key in apart.leading and (key in referenced or relation.name in arrived_at):
            found |= {each.type for each in relation.subjects}
    if not found:
        found = {type_.name for type_ in apart.model.types if not type_.relations} or {
            type_.name for type_ in apart.model.types
        }
    return frozenset(found)
