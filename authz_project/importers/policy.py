"""Write a model as a policy: one block per type, in shorthand wherever it is equivalent."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from textwrap import wrap

from authz_project.importers import ir, terms
from authz_project.importers.conditions import condition_rules
from authz_project.importers.facts import WrittenTests
from authz_project.importers.layout import (
    PolarName,
    PolicyLayout,
    RelationKind,
    RelationStep,
    uncertain_relations,
    variable,
)
from policy.language import ast
from policy.language.ast import print_entry, print_formula, print_item
from policy.language.format import formatted
from policy.values import quoted

# ---- the rules of each type: declarations of its block, and what is derived in it ---------------------------------


@dataclass
class ResourceBlock:
    type: ir.Type
    name: str
    is_actor: bool
    roles: list[str] = field(default_factory=list)
    permissions: list[str] = field(default_factory=list)
    relations: dict[str, str] = field(default_factory=dict)  # the types that they lead to
    about: list[str] = field(default_factory=list)  # comments on relations that have no rules in the block
    rules: list[str] = field(default_factory=list)  # in shorthand, each preceded by its comments
    declares: dict[str, None] = field(default_factory=dict)  # of relations that lead to several types
    longhand: list[ast.Rule] = field(default_factory=list)  # outside of the block


class _PolicyWriter:
    """Writes all blocks; with `has_usersets`, actors represent usersets in checks, to which `user:*` does not apply.

    With `possible`, a formula holds unless it is known to be false.
    """

    def __init__(self, layout: PolicyLayout, has_usersets: bool):
        self.layout, self.has_usersets = layout, has_usersets
        self.failing: set[str] = set()  # conditions of which rules need to know whether they definitely fail
        self.uncertain = uncertain_relations(layout.apart)
        self.possible: list[tuple[str, str | RelationStep]] = []  # types, and what has a `possible` variant there
        self._variables: set[str] = set()  # of the current rule
        self.blocks = {
            type_.name: ResourceBlock(type_, layout.types[type_.name], type_.name in layout.actors)
            for type_ in layout.model.types
        }
        for type_, relation in ir.relations_of(layout.model):
            self.relation(type_, relation)
        for type_name, each in self.possible:  # their rules may need more of them
            if isinstance(each, RelationStep):
                self._possible_step(self.blocks[type_name], each)
            else:
                self._possible_relation(self.blocks[type_name], each)

    # ---- expressions as conditions of shorthand rules, about `actor` and `resource` ----------------------------------

    def of(self, type_name: str, expression: ir.Expression, possible: bool = False) -> ast.Formula:
        match expression:
            case ir.Computed(relation):
                return self.holds(type_name, relation, terms.ACTOR, None, possible)
            case ir.Arrow(tupleset, relation, every):
                return self._arrow(type_name, tupleset, relation, every, possible)
            case ir.Union(parts):
                return terms.either(*[self.of(type_name, part, possible) for part in parts])
            case ir.Intersection(parts):
                return terms.every(*[self.of(type_name, part, possible) for part in parts])
            case ir.Exclusion(base, subtract):
                kept, subtracted = self.of(type_name, base, possible), self.of(type_name, subtract, not possible)
                return terms.every(kept, *map(terms.no, terms.parts_of(subtracted, ast.Or)))
            case ir.Unsure(most):
                return self.of(type_name, most, True) if possible else terms.FALSE
            case ir.Itself():
                return terms.every(
                    terms.matches("actor", self.layout.types[type_name]),
                    ast.Comparison("=", terms.ACTOR, terms.RESOURCE),
                )
            case ir.Nothing() | ir.Direct():
                return terms.FALSE

    # ---- relations ---------------------------------------------------------------------------------------------------

    def polar_name(self, type_name: str, relation: str, possible: bool) -> PolarName:
        """Return a relation's name; with `possible`, register and return its possible variant if it is uncertain."""
        named = self.layout.relation_names[type_name, relation]
        if not (possible and (type_name, relation) in self.uncertain):
            return named
        kind, needed = RelationKind.PERMISSION, list[str | RelationStep]([relation])
        if named.kind is RelationKind.RELATION:
            targets = self.layout.targets(type_name, relation)
            kind, needed = named.kind, [RelationStep(named.name, each) for each in targets]
        self._need(type_name, *needed)
        return PolarName(kind, f"{self.layout.possibly}{named.name}")

    def _need(self, type_name: str, *needed: str | RelationStep) -> None:
        """Note relations and steps whose `possible` variant is used."""
        self.possible += [(type_name, each) for each in needed if (type_name, each) not in self.possible]

    def holds(
        self, type_name: str, relation: str, actor: ast.Term, on: ast.Variable | None, possible: bool
    ) -> ast.Formula:
        """Return the condition that an actor has a relation to the rule's resource, or to the other object `on`."""
        if (type_name, relation) not in self.layout.relation_names:
            return terms.FALSE
        kind, name = self.polar_name(type_name, relation, possible)
        if on is None and (kind is not RelationKind.RELATION or self.layout.is_simple(type_name, relation)):
            return ast.Reference(name)
        thing = on or terms.RESOURCE
        if kind is RelationKind.RELATION:
            return terms.call("has_relation", thing, terms.text(name), actor)
        return terms.call(f"has_{kind.value}", actor, terms.text(name), thing)

    # ---- arrows ------------------------------------------------------------------------------------------------------

    def _arrow(self, type_name: str, tupleset: str, relation: str, every: bool, possible: bool) -> ast.Formula:
        steps = self.layout.steps(type_name, tupleset)
        if not every:
            return terms.either(*[self.on(type_name, step, relation, possible) for step in steps])
        some = [self._leads(type_name, step, self._thing(step.target), possible) for step in steps]
        return terms.every(
            terms.either(*some), *[self._nowhere_without(type_name, step, relation, possible) for step in steps]
        )

    def on(self, type_name: str, step: RelationStep, relation: str, possible: bool) -> ast.Formula:
        """Return `"viewer" on "parent"`, or in longhand if a block cannot declare what `parent` leads to."""
        key = (step.target, relation)
        if key not in self.layout.relation_names:
            return terms.FALSE
        kind, name = self.polar_name(*key, possible)
        is_plain = kind is not RelationKind.RELATION or self.layout.is_simple(*key)
        if is_plain and self._is_declared(type_name, step):
            return ast.Reference(name, relation=self._step_name(type_name, step, possible))
        thing = self._thing(step.target)
        asked = self.holds(*key, terms.ACTOR, ast.Variable(thing), possible)
        return terms.every(self._leads(type_name, step, thing, possible), asked)

    def _nowhere_without(self, type_name: str, step: RelationStep, relation: str, possible: bool) -> ast.Formula:
        """Return that no related object lacks the relation; an object whose tuple's condition is not met lacks it."""
        thing = self._thing(step.target, "other_")
        asked = self.holds(step.target, relation, terms.ACTOR, ast.Variable(thing), possible)
        leads = self._leads(type_name, step, thing, possible)
        if (type_name, step.name) not in self.layout.uncertain_steps:
            return terms.no(terms.every(leads, terms.no(asked)))
        waiting = terms.call("has_relation_if", terms.RESOURCE, terms.text(step.name), ast.Variable(thing), terms.ANY)
        typed = terms.matches(thing, self.layout.types[step.target])
        there = terms.every(typed, terms.either(self._leads(type_name, step, thing, False), waiting))
        return terms.no(terms.every(there, terms.no(terms.every(leads, asked))))

    def _thing(self, type_name: str, prefix: str = "") -> str:
        """Return an unused variable for a related object, named after its type."""
        name = wanted = variable(f"{prefix}{self.layout.types[type_name]}")
        number = 1
        while name in self._variables:
            number += 1
            name = f"{wanted}{number}"
        self._variables.add(name)
        return name

    def _leads(self, type_name: str, step: RelationStep, thing: str, possible: bool) -> ast.Formula:
        name = terms.text(self._step_name(type_name, step, possible))
        return terms.every(
            terms.matches(thing, self.layout.types[step.target]),
            terms.call("has_relation", terms.RESOURCE, name, ast.Variable(thing)),
        )

    def _step_name(self, type_name: str, step: RelationStep, possible: bool) -> str:
        if not (possible and (type_name, step.name) in self.layout.uncertain_steps):
            return step.name
        self._need(type_name, step)
        return f"{self.layout.possibly}{step.name}"

    def _is_declared(self, type_name: str, step: RelationStep) -> bool:
        """Return whether the block declares where the step leads, as for usersets and for a single target type."""
        for key, named in self.layout.relation_names.items():
            if key[0] == type_name and named == PolarName(RelationKind.RELATION, step.name):
                return self.layout.is_simple(*key)
        return True

    # ---- definite ----------------------------------------------------------------------------------------------------

    def relation(self, type_: ir.Type, relation: ir.ModelRelation) -> None:
        block, (kind, name) = self.blocks[type_.name], self.layout.relation_names[type_.name, relation.name]
        if kind is RelationKind.RELATION:
            rules, targets = [], [self.layout.types[each] for each in self.layout.targets(type_.name, relation.name)]
            about = " ".join(relation.comment) or (f"leads to {' and '.join(targets)}" if len(targets) > 1 else "")
            if len(targets) > 1:
                block.declares |= {f"declare has_relation({block.name}, String, {each});": None for each in targets}
            else:
                block.relations[name] = targets[0]
        else:
            (block.roles if kind is RelationKind.ROLE else block.permissions).append(name)
            about = " ".join(relation.comment)
            rules = _shorthands(name, self._ways(type_, relation, False), relation.comment)
        block.rules += rules
        if about and not rules:
            block.about.append(f"{quoted(name)}: {about}")
        for step, subject in self.layout.steps_of(type_.name, relation.name):
            if subject.relation:
                block.relations[step.name] = self.layout.types[step.target]
            if subject.condition:
                block.longhand.append(self._waiting_relation(block, step.name, step, subject.condition, False))

    def _ways(self, type_: ir.Type, relation: ir.ModelRelation, possible: bool) -> list[ast.Formula]:
        """Return what grants a relation, except for facts of the relation itself."""
        found = self._own(type_, relation, possible)
        for part in ir.alternatives(relation.expression):
            if not ir.is_direct(part):
                self._variables.clear()
                found.append(self.of(type_.name, part, possible))
        return found

    def _own(self, type_: ir.Type, relation: ir.ModelRelation, possible: bool) -> list[ast.Formula]:
        """Return what tuples of the relation itself grant, except those that are facts of the role."""
        named = self.layout.relation_names[type_.name, relation.name]
        found: dict[ast.Formula, None] = {}
        for subject in relation.subjects:
            if subject.wildcard:
                found[self._everybody(type_.name, relation, subject, named.name, possible)] = None
            elif subject.relation:
                self._variables.clear()
                name = self.layout.userset_names[type_.name, relation.name, subject.type, subject.relation]
                found[self.on(type_.name, RelationStep(name, subject.type), subject.relation, possible)] = None
            elif subject.condition:
                found[self._waiting(subject.condition, possible, terms.call(
                    "has_role_if", terms.ACTOR, terms.text(named.name), terms.RESOURCE, terms.WHEN
                ))] = None  # fmt: skip
        return [*found]

    def _everybody(
        self, type_name: str, relation: ir.ModelRelation, subject: ir.Subject, name: str, possible: bool
    ) -> ast.Formula:
        public = self.layout.public_types(type_name, relation.name)
        args: list[ast.Term] = [terms.RESOURCE, terms.text(name)]
        if len(public) > 1:
            args.append(terms.text(self.layout.types[subject.type]))
        typed: ast.Formula = terms.TRUE
        if self.layout.actors != {subject.type} or self.has_usersets:
            typed = terms.matches("actor", self.layout.types[subject.type])
        if subject.condition is None:
            return terms.every(typed, terms.call("is_public", *args))
        called = terms.call("is_public_if", *args, terms.WHEN)
        return terms.every(typed, self._waiting(subject.condition, possible, called))

    def _waiting(self, condition: str, possible: bool, called: ast.Call) -> ast.Formula:
        """Return the condition that a conditional tuple exists and is met; with `possible`, that it is possibly met."""
        name = self.layout.conditions[condition]
        if not possible:
            return terms.every(called, terms.call(name, terms.WHEN))
        self.failing.add(condition)
        return terms.every(called, terms.matches("when", name), terms.no(terms.call("fails", terms.WHEN)))

    def _waiting_relation(
        self, block: ResourceBlock, name: str, step: RelationStep, condition: str, possible: bool
    ) -> ast.Rule:
        thing, other = _two(block.name), _two(self.layout.types[step.target], block.name)
        called = terms.call(
            "has_relation_if", ast.Variable(thing), terms.text(step.name), ast.Variable(other), terms.WHEN
        )
        params = (
            terms.parameter(thing, block.name), terms.text(name), terms.parameter(other, self.layout.types[step.target])
        )  # fmt: skip
        return terms.rule("has_relation", params, self._waiting(condition, possible, called))

    # ---- possible ----------------------------------------------------------------------------------------------------

    def _possible_step(self, block: ResourceBlock, step: RelationStep) -> None:
        name, target = f"{self.layout.possibly}{step.name}", self.layout.types[step.target]
        if step.name in block.relations:
            block.relations[name] = target
        thing, other = _two(block.name), _two(target, block.name)
        params = (terms.parameter(thing, block.name), terms.text(name), terms.parameter(other, target))
        given = terms.call("has_relation", ast.Variable(thing), terms.text(step.name), ast.Variable(other))
        block.longhand.append(terms.rule("has_relation", params, given))
        block.longhand += [
            self._waiting_relation(block, name, step, condition, True)
            for condition in self.layout.conditions_of_steps.get((block.type.name, step), ())
        ]

    def _possible_relation(self, block: ResourceBlock, name: str) -> None:
        relation, named = (
            self.layout.relations[block.type.name, name],
            self.layout.relation_names[block.type.name, name],
        )
        possible = f"{self.layout.possibly}{named.name}"
        block.permissions.append(possible)
        narrow, wide = self._ways(block.type, relation, False), self._ways(block.type, relation, True)
        ways: list[ast.Formula] = [ast.Reference(named.name), *[each for each in wide if each not in narrow]]
        block.rules += _shorthands(possible, ways, (f"whoever may be {named.name}, for all that is known",))


def _shorthands(name: str, formulas: list[ast.Formula], comment: tuple[str, ...]) -> list[str]:
    """Return one shorthand rule per alternative, after the comment: `a or b` becomes two."""
    parts = dict.fromkeys(part for each in formulas for part in terms.parts_of(each, ast.Or))
    head = ast.Reference(name)
    rules = [f"{print_formula(head)} if {print_formula(part)};" for part in parts if part not in (terms.FALSE, head)]
    return ["", *_comments(comment), *rules] if comment and rules else rules


def _two(name: str, other: str = "") -> str:
    """Return a variable for an object of one type, distinct from that of the `other` type."""
    return f"other_{name}" if other and variable(name) == variable(other) else variable(name)


# ---- the text of the policy, with the comments of the original ----------------------------------------------------

WIDTH = 100  # characters of a generated comment

ALLOW = """
# Roles can be asked for as permissions can: /authorize answers for both.
allow(actor: Actor, action: String, resource: Resource) if has_permission(actor, action, resource);
allow(actor: Actor, role: String, resource: Resource) if has_role(actor, role, resource);
"""
ALLOW_RELATIONS = """\
allow(actor: Actor, relation: String, resource: Resource) if has_relation(resource, relation, actor);
"""
VALUES = """
# A value that a condition asks for: the tuple's own, or else the request's.
value_of(when: Resource, name: String, value) if parameter(when, name, value);
value_of(when: Resource, name: String, value) if context(name, value) and not parameter(when, name, _);
"""
USERSETS = """
# Stands for a userset in questions: {name}{{"group:eng#member"}}, which is given the role "member" on the group.
actor {name} {{}}
"""


def policy_text(layout: PolicyLayout, tests: WrittenTests, has_usersets: bool) -> str:
    writer = _PolicyWriter(layout, has_usersets)
    blocks, conditions = writer.blocks.values(), layout.model.conditions
    parts = ["\n".join(_comments(layout.model.comment))]
    if has_usersets:
        parts.append(USERSETS.format(name=layout.userset_type))
    for block in blocks:
        parts += [_block_text(block), *map(print_item, block.longhand), "\n".join(block.declares)]
    for each in conditions:
        name = layout.conditions[each.name]
        comments = _comments([*each.comment, *wrap(each.text or each.name, WIDTH)])
        parts.append("\n".join([*comments, f"resource {name} {{}}"]))
        parts += map(print_item, condition_rules(each, name, each.name in writer.failing, layout.clock))
    if conditions:
        parts.append(VALUES)
    if any(block.roles for block in blocks):
        leads = any(set(layout.targets(*key)) & layout.actors for key in layout.apart.leading)
        parts.append(ALLOW + (ALLOW_RELATIONS if leads else ""))
    parts += map(print_item, tests.items)
    return formatted("\n\n".join(filter(None, parts)))


def _block_text(block: ResourceBlock) -> str:
    declared: list[ast.NameList | ast.RelationMap] = [
        ast.NameList(ast.Name(keyword), tuple(map(ast.String, names)))
        for keyword, names in (("roles", block.roles), ("permissions", block.permissions))
        if names
    ]
    if block.relations:
        related = tuple(ast.Relation(ast.Name(name), ast.Name(target)) for name, target in block.relations.items())
        declared.append(ast.RelationMap(ast.Name("relations"), related))
    return "\n".join([
        *_comments([*block.type.comment, *block.about]),
        f"{'actor' if block.is_actor else 'resource'} {block.name} {{",
        *map(print_entry, declared),
        *(["", *block.rules] if block.rules else []),
        "}",
    ])  # fmt: skip


def _comments(lines: Iterable[str]) -> list[str]:
    """Return comments in Polar's syntax."""
    return [f"# {_visible(line)}".rstrip() for text in lines for line in (text.splitlines() or [""])]


def _visible(line: str) -> str:
    """Return the line without characters that comments cannot contain."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]", " ", line).strip()
