"""What grants what in a policy, by resource type: the rules as a graph, to be drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeGuard

from checks.explain.cases import ordered_body
from checks.explain.tree import abbreviated, formula_of, shown_literal, source_text
from checks.workbench.needs import ANY_NAME, KIND_OF, PERMISSION, RELATION, ROLE, Need, Needing, label_of
from policy.language.source import NOWHERE, Span
from policy.rules.program import Atom, Literal, Not, Program, Rule, Term, Types, Var, types_of
from policy.values import Value

_NUMBER = re.compile(r"#\d+")  # tells variables of the same name apart
MAX_LABEL = 44  # characters
MAX_GRANTS = 120  # of one type
GLOBAL = "global"  # stands in place of a type for roles and permissions without a resource


@dataclass(frozen=True, slots=True)
class Node:
    """What a grant starts from or leads to: a role or permission of the type itself, or something outside of it.

    `owner` is the type, if nodes of several types are drawn together. `needs` are the roles and permissions, perhaps of
    other types, that a node of something outside stands for.
    """

    kind: str  # role, permission, relation, or condition
    label: str
    owner: str = ""
    needs: tuple[Need, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """A rule as an edge: whoever has all sources has the target."""

    sources: tuple[Node, ...]
    target: Node
    line: int | None
    text: str
    needs: tuple[Need, ...] = ()  # of all sources together
    through: frozenset[Span] = frozenset()  # other rules from which the needs come


@dataclass(frozen=True, slots=True)
class Sheet:
    """One type, what it declares, and what grants it."""

    type: str | None  # None: what holds without a resource
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    relations: tuple[tuple[str, str], ...]
    grants: tuple[Grant, ...]
    hidden: int = 0

    @property
    def name(self) -> str:
        return GLOBAL if self.type is None else self.type

    @property
    def title(self) -> str:
        return "Global" if self.type is None else self.type


@dataclass(frozen=True)
class Graph:
    """All sheets of a policy, and the rules that are on none."""

    sheets: Mapping[str | None, Sheet]  # by type
    others: tuple[tuple[int, str, Span], ...]  # line, text and place

    @cached_property
    def sources(self) -> Mapping[str | None, tuple[str | None, ...]]:
        """Return the other types that each type takes roles and permissions from."""
        found = {}
        for name, sheet in self.sheets.items():
            taken = dict.fromkeys(each for grant in sheet.grants for need in grant.needs for each in need.types)
            found[name] = tuple(each for each in taken if each != name and each in self.sheets)
        return found

    @cached_property
    def followers(self) -> Mapping[str | None, tuple[str | None, ...]]:
        """Return the other types that take roles and permissions from each type."""
        found: dict[str | None, list[str | None]] = {name: [] for name in self.sheets}
        for name, sources in self.sources.items():
            for source in sources:
                found[source].append(name)
        return {name: tuple(each) for name, each in found.items()}


def graph_of(program: Program) -> Graph:
    sheets = sheets_of(program)
    return Graph({sheet.type: sheet for sheet in sheets}, tuple(_other_rules(program, sheets)))


def sheets_of(program: Program) -> list[Sheet]:
    """Return a sheet for each type with roles, permissions or relations, and one for what is global."""
    granted = _granted(program)
    found = [
        _sheet(name, each.roles, each.permissions, tuple(each.relations.items()), granted.get(name, {}))
        for name, each in program.types.items()
    ]
    if program.has_global:
        found.append(_sheet(None, program.global_roles, program.global_permissions, (), granted.get(None, {})))
    return [each for each in found if each.roles or each.permissions or each.relations or each.grants]


def _other_rules(program: Program, sheets: list[Sheet]) -> Iterator[tuple[int, str, Span]]:
    """Yield line, text and place of the rules that are on no sheet."""
    seen: set[tuple[int | None, str]] = {(grant.line, grant.text) for sheet in sheets for grant in sheet.grants}
    for origin in sorted(program.written, key=lambda span: span.start):
        line, text = program.source.position(origin.start)[0], source_text(program, origin)
        if (line, text) not in seen:
            seen.add((line, text))
            yield line, text, origin


def _sheet(
    name: str | None, roles: tuple[str, ...], permissions: tuple[str, ...], relations: tuple[tuple[str, str], ...],
    granted: dict[Grant, None],
) -> Sheet:  # fmt: skip
    grants = tuple(granted)
    return Sheet(name, roles, permissions, relations, grants[:MAX_GRANTS], len(grants[MAX_GRANTS:]))


# ---- rules as grants ---------------------------------------------------------------------------------------------


def _granted(program: Program) -> dict[str | None, dict[Grant, None]]:
    """Return the grants by type, looking at each rule once; the inner dicts are ordered sets."""
    needing, found = Needing(program), dict[str | None, dict[Grant, None]]()
    for predicate, kind in ((ROLE, "role"), (PERMISSION, "permission")):
        for arity in (2, 3):
            for rule in program.rules_by_predicate.get((predicate, arity), ()):
                if rule.origin != NOWHERE:
                    grants = dict.fromkeys(_grants_of_rule(needing, rule, Node(kind, label_of(rule.head.args[1]))))
                    for name in types_of(rule.head.args[2], rule.types) if arity == 3 else (None,):
                        found.setdefault(name, {}).update(grants)
    return found


def _grants_of_rule(needing: Needing, rule: Rule, target: Node) -> Iterator[Grant]:
    program = needing.program
    line, text = program.source.position(rule.origin.start)[0], source_text(program, rule.origin)
    alternatives: list[list[Literal]] = [[]]
    types = dict(rule.types)
    for literal in ordered_body(rule):
        parts = _alternatives(program, literal, types)
        alternatives = [[*each, *part] for each in alternatives for part in parts][:MAX_GRANTS]
    for body in alternatives:
        sources = tuple(dict.fromkeys(_sources(needing, rule, body, types))) or (Node("condition", "everyone"),)
        needed = needing.of(rule, body, types)
        yield Grant(sources, target, line, text, needed.needs, needed.through)


def _alternatives(program: Program, literal: Literal, types: dict[Var, Types]) -> list[list[Literal]]:
    """Return the alternatives of a literal: the conditions of each side of an `or`, else only the literal itself."""
    if isinstance(literal, Atom) and literal.predicate in program.helpers:
        rules = program.rules_by_predicate.get((literal.predicate, len(literal.args)), ())
        if all(rule.head.args == literal.args for rule in rules):
            for rule in rules:
                types.update(rule.types)
            return [list(rule.body) for rule in rules]
    return [[literal]]


def _sources(needing: Needing, rule: Rule, body: list[Literal], types: Mapping[Var, Types]) -> Iterator[Node]:
    actor, resource = rule.head.args[0], rule.head.args[2] if len(rule.head.args) > 2 else None
    related = [each for each in body if _is_link(each, resource)]
    links = {each.args[2]: each for each in related if isinstance(each.args[2], Var) and each.args[2] != actor}
    used: set[Atom] = set()

    def outside(kind: str, label: str, literal: Literal) -> Node:
        return Node(kind, label, needs=needing.of(rule, (literal,), types).needs)

    for literal in body:
        match literal:
            case Atom("has_role" | "has_permission" as predicate, (who, name, thing)) if who == actor:
                if thing == resource:
                    yield Node(KIND_OF[predicate], label_of(name))
                elif thing in links:
                    used.add(links[thing])
                    yield outside("relation", f"{label_of(name)} on {label_of(links[thing].args[1])}", literal)
                else:
                    yield outside("condition", _condition(needing.program, literal), literal)
            case Atom("has_relation", (thing, name, who)) if thing == resource and who == actor:
                yield outside("relation", label_of(name), literal)
            case Atom("has_role" | "has_permission" as predicate, (who, name)) if who == actor and resource is None:
                yield Node(KIND_OF[predicate], label_of(name))
            case Atom("has_role" | "has_permission", (who, name)) if who == actor:
                yield outside("condition", f"global {label_of(name)}", literal)
            case _ if literal not in links.values():
                yield outside("condition", _condition(needing.program, literal), literal)
    for link in links.values():
        if link not in used:
            yield outside("condition", _condition(needing.program, link), link)


def _is_link(literal: Literal, resource: Term | None) -> TypeGuard[Atom]:
    return isinstance(literal, Atom) and literal.predicate == RELATION and literal.args[0] == resource


def _condition(program: Program, literal: Literal) -> str:
    if isinstance(literal, Not) and literal.atom.predicate in program.helpers:
        text = f"not ({formula_of(program, literal.atom.predicate, len(literal.atom.args))})"
    else:
        text = shown_literal(program, literal, {}, 0) if _is_ground(literal) else _NUMBER.sub("", str(literal))
    return abbreviated(text, MAX_LABEL)


def _is_ground(literal: Literal) -> bool:
    return isinstance(literal, Atom) and all(isinstance(arg, Value) for arg in literal.args)


__all__ = [
    "ANY_NAME",
    "GLOBAL",
    "Grant",
    "Graph",
    "Need",
    "Node",
    "Sheet",
    "graph_of",
    "sheets_of",
]
