"""Takes relations apart, until each is either given or follows.

`viewer: [user] but not blocked` is two ideas in one name: who was made a viewer, and who is one. A fact that said
"viewer" would say the second. So tuples of such a relation become `direct_viewer`, and `viewer` follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from authz_project.importers.model import (
    Arrow,
    Computed,
    Direct,
    Expression,
    Model,
    Relation,
    Subject,
    Type,
    Union,
)
from authz_project.importers.polar.walk import alternatives, changed, is_direct, leaves, relations_of

Key = tuple[str, str]  # a type and a relation, as the model names them


@dataclass(frozen=True, slots=True)
class Apart:
    """The model again; where tuples of some relations went; and which relations lead from object to object."""

    model: Model
    plain_homes: dict[Key, str] = field(default_factory=dict)  # of subjects that are objects
    other_homes: dict[Key, str] = field(default_factory=dict)  # of usersets and of everybody
    leading: frozenset[Key] = frozenset()

    def home(self, type_name: str, relation: str, is_plain: bool) -> str:
        """Return the relation that tuples of a relation are tuples of now."""
        homes = self.plain_homes if is_plain else self.other_homes
        return homes.get((type_name, relation), relation)

    def homes(self, type_name: str, relation: str) -> tuple[str, ...]:
        """Return where an arrow looks for what it follows: all that tuples of the relation are tuples of now."""
        return tuple(dict.fromkeys(self.home(type_name, relation, is_plain) for is_plain in (True, False)))


def taken_apart(model: Model) -> Apart:
    leading = {
        (type_.name, leaf.tupleset)
        for type_, relation in relations_of(model)
        for leaf, _ in leaves(relation.expression)
        if isinstance(leaf, Arrow)
    }
    leading |= _between_things(model)
    apart = Apart(model)
    types, all_leading = [], set()
    for type_ in model.types:
        splitter = _Splitter(type_, leading, apart)
        types.append(replace(type_, relations=tuple(splitter.relations())))
        all_leading |= splitter.leading
    return replace(apart, model=replace(model, types=tuple(types)), leading=frozenset(all_leading))


def _between_things(model: Model) -> set[Key]:
    """Return the relations that lead from thing to thing, though nothing follows them: `supersedes: [document]`."""
    things = {type_.name for type_ in model.types if type_.relations}
    asked = {
        (subject.type, subject.relation) for _, relation in relations_of(model) for subject in relation.subjects
    }
    asked |= {
        (type_.name, leaf.relation)
        for type_, relation in relations_of(model)
        for leaf, _ in leaves(relation.expression)
        if isinstance(leaf, Computed)
    }
    return {
        (type_.name, relation.name)
        for type_, relation in relations_of(model)
        if is_direct(relation.expression)
        and all(_is_plain(each) and each.type in things for each in relation.subjects)
        and (type_.name, relation.name) not in asked
    }


class _Splitter:
    def __init__(self, type_: Type, leading: set[Key], apart: Apart):
        self.type = type_
        self.wanted = leading
        self.apart = apart
        self.leading: set[Key] = set()
        self.names = {relation.name for relation in type_.relations}

    def relations(self) -> list[Relation]:
        found: list[Relation] = []
        for relation in self.type.relations:
            found += self._of(relation)
        return found

    def _of(self, relation: Relation) -> list[Relation]:
        key, expression = (self.type.name, relation.name), relation.expression
        if not relation.subjects:
            return [replace(relation, expression=_without_direct(expression), is_permission=True)]
        if key in self.wanted:
            return self._leading(relation)
        if any(map(is_direct, alternatives(expression))):
            return [relation]
        given = self._new_name(relation)
        self.apart.plain_homes[key] = self.apart.other_homes[key] = given
        return [
            replace(relation, name=given, expression=Direct(), is_permission=False, comment=()),
            _following(relation, Computed(given)),
        ]

    def _leading(self, relation: Relation) -> list[Relation]:
        """Split a relation that arrows follow: its tuples to objects get a relation apart from usersets and rules."""
        key = (self.type.name, relation.name)
        plain = tuple(each for each in relation.subjects if _is_plain(each))
        others = tuple(each for each in relation.subjects if not _is_plain(each))
        if is_direct(relation.expression) and not others:
            self.leading.add(key)
            return [relation]
        found: list[Relation] = []
        instead: list[Expression] = []
        if plain:
            name = self._new_name(relation)
            self.apart.plain_homes[key] = name
            self.leading.add((self.type.name, name))
            found.append(replace(relation, name=name, expression=Direct(), subjects=plain, comment=()))
            instead.append(Computed(name))
        if others:
            instead.append(Direct())
        rest = _following(relation, Union(tuple(instead)) if len(instead) > 1 else instead[0])
        if not others:
            return [*found, rest]
        rest = replace(rest, subjects=others, is_permission=False)
        if any(map(is_direct, alternatives(rest.expression))):
            return [*found, rest]
        name = self._new_name(relation)
        self.apart.other_homes[key] = name
        given = replace(relation, name=name, expression=Direct(), subjects=others, comment=())
        return [*found, given, _following(rest, Computed(name))]

    def _new_name(self, relation: Relation) -> str:
        name = f"direct_{relation.name}"
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name


def _following(relation: Relation, instead: Expression) -> Relation:
    """Return the relation as a permission, with something in the place of its own tuples."""
    expression = changed(relation.expression, lambda part: instead if is_direct(part) else part)
    return replace(relation, expression=expression, subjects=(), is_permission=True)


def _without_direct(expression: Expression) -> Expression:
    return changed(expression, lambda part: Union(()) if is_direct(part) else part)


def _is_plain(subject: Subject) -> bool:
    return not subject.relation and not subject.wildcard
