"""Expressions as conditions of shorthand rules, about `actor` and `resource`."""

from __future__ import annotations

from dataclasses import dataclass, field

from authz_project.importers.model import (
    Arrow,
    Computed,
    Direct,
    Exclusion,
    Expression,
    Intersection,
    Itself,
    Nothing,
    Union,
    Unsure,
)
from authz_project.importers.polar import terms
from authz_project.importers.polar.apart import Key
from authz_project.importers.polar.layout import Kind, Layout, PolarName, Step
from authz_project.importers.polar.names import variable
from policy.language import ast


@dataclass
class Formulas:
    """Writes formulas, and collects the relations and steps whose `possible` variant they use.

    With `possible`, a formula holds unless it is known to be false.
    """

    layout: Layout
    uncertain: frozenset[Key]
    possible_relations: dict[Key, None] = field(default_factory=dict)
    possible_steps: dict[tuple[str, Step], None] = field(default_factory=dict)  # by the type that they lead from
    uncertain_steps: frozenset[tuple[str, str]] = frozenset()  # types, and names of steps from there
    _variables: set[str] = field(default_factory=set)  # of the rule that is being written

    def rule(self, type_name: str, expression: Expression, possible: bool = False) -> ast.Formula:
        """Return the whole condition of one rule."""
        self.begin()
        return self.of(type_name, expression, possible)

    def begin(self) -> None:
        """Begin another rule, whose variables are its own."""
        self._variables.clear()

    def of(self, type_name: str, expression: Expression, possible: bool = False) -> ast.Formula:
        match expression:
            case Computed(relation):
                return self.holds(type_name, relation, terms.ACTOR, None, possible)
            case Arrow(tupleset, relation, every):
                return self._arrow(type_name, tupleset, relation, every, possible)
            case Union(parts):
                return terms.either(*[self.of(type_name, part, possible) for part in parts])
            case Intersection(parts):
                return terms.every(*[self.of(type_name, part, possible) for part in parts])
            case Exclusion(base, subtract):
                kept = self.of(type_name, base, possible)
                return terms.every(kept, terms.no(self.of(type_name, subtract, not possible)))
            case Unsure(most):
                return self.of(type_name, most, True) if possible else terms.FALSE
            case Itself():
                return terms.every(
                    terms.matches("actor", self.layout.types[type_name]),
                    ast.Comparison("=", terms.ACTOR, terms.RESOURCE),
                )
            case Nothing() | Direct():
                return terms.FALSE

    # ---- one relation ------------------------------------------------------------------------------------------------

    def polar_name(self, type_name: str, relation: str, possible: bool) -> PolarName:
        """Return what a relation is called; with `possible`, note and return its wider variant if it is uncertain."""
        named = self.layout.relation_names[type_name, relation]
        if not (possible and (type_name, relation) in self.uncertain):
            return named
        self.possible_relations[type_name, relation] = None
        if named.kind is Kind.RELATION:
            for target in self.layout.targets(type_name, relation):
                self.possible_steps[type_name, Step(named.name, target)] = None
            return PolarName(Kind.RELATION, f"{self.layout.possibly}{named.name}")
        return PolarName(Kind.PERMISSION, f"{self.layout.possibly}{named.name}")

    def holds(
        self, type_name: str, relation: str, actor: ast.Term, on: ast.Variable | None, possible: bool
    ) -> ast.Formula:
        """Ask that an actor has a relation to the rule's own resource, or to the other thing `on`."""
        if (type_name, relation) not in self.layout.relation_names:
            return terms.FALSE
        kind, name = self.polar_name(type_name, relation, possible)
        if on is None and (kind is not Kind.RELATION or self.layout.is_simple(type_name, relation)):
            return ast.Reference(name)
        thing = on or terms.RESOURCE
        if kind is Kind.RELATION:
            return terms.call("has_relation", thing, terms.text(name), actor)
        return terms.call(f"has_{kind.value}", actor, terms.text(name), thing)

    # ---- on what is related ------------------------------------------------------------------------------------------

    def _arrow(self, type_name: str, tupleset: str, relation: str, every: bool, possible: bool) -> ast.Formula:
        steps = self.layout.steps(type_name, tupleset)
        if not every:
            return terms.either(*[self.on(type_name, step, relation, possible) for step in steps])
        some = [self._leads(type_name, step, self._thing(step.target), possible) for step in steps]
        return terms.every(
            terms.either(*some), *[self._nowhere_without(type_name, step, relation, possible) for step in steps]
        )

    def on(self, type_name: str, step: Step, relation: str, possible: bool) -> ast.Formula:
        """Ask `"viewer" on "parent"`, written out where a block cannot declare what `parent` leads to."""
        key = (step.target, relation)
        if key not in self.layout.relation_names:
            return terms.FALSE
        kind, name = self.polar_name(*key, possible)
        is_plain = kind is not Kind.RELATION or self.layout.is_simple(*key)
        if is_plain and self._is_declared(type_name, step):
            return ast.Reference(name, relation=self._step_name(type_name, step, possible))
        thing = self._thing(step.target)
        asked = self.holds(*key, terms.ACTOR, ast.Variable(thing), possible)
        return terms.every(self._leads(type_name, step, thing, possible), asked)

    def _nowhere_without(self, type_name: str, step: Step, relation: str, possible: bool) -> ast.Formula:
        """Return that no related thing lacks the relation; where a tuple's condition is not met, its thing lacks it."""
        thing = self._thing(step.target, "other_")
        asked = self.holds(step.target, relation, terms.ACTOR, ast.Variable(thing), possible)
        leads = self._leads(type_name, step, thing, possible)
        if (type_name, step.name) not in self.uncertain_steps:
            return terms.no(terms.every(leads, terms.no(asked)))
        waiting = terms.call(
            "has_relation_if", terms.RESOURCE, terms.text(step.name), ast.Variable(thing), terms.ANY
        )
        typed = terms.matches(thing, self.layout.types[step.target])
        there = terms.every(typed, terms.either(self._leads(type_name, step, thing, False), waiting))
        return terms.no(terms.every(there, terms.no(terms.every(leads, asked))))

    def _thing(self, type_name: str, prefix: str = "") -> str:
        """Return a variable of its own for a related thing, called as its type is."""
        name = wanted = variable(f"{prefix}{self.layout.types[type_name]}")
        number = 1
        while name in self._variables:
            number += 1
            name = f"{wanted}{number}"
        self._variables.add(name)
        return name

    def _leads(self, type_name: str, step: Step, thing: str, possible: bool) -> ast.Formula:
        name = terms.text(self._step_name(type_name, step, possible))
        return terms.every(
            terms.matches(thing, self.layout.types[step.target]),
            terms.call("has_relation", terms.RESOURCE, name, ast.Variable(thing)),
        )

    def _step_name(self, type_name: str, step: Step, possible: bool) -> str:
        if not (possible and (type_name, step.name) in self.uncertain_steps):
            return step.name
        self.possible_steps[type_name, step] = None
        return f"{self.layout.possibly}{step.name}"

    def _is_declared(self, type_name: str, step: Step) -> bool:
        """Say whether the block says where the step leads: it does for relations of usersets, and those to one type."""
        for key, named in self.layout.relation_names.items():
            if key[0] == type_name and named == PolarName(Kind.RELATION, step.name):
                return self.layout.is_simple(*key)
        return True
