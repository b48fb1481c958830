"""What grants what in a policy, by resource type: the rules as a graph, to be drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

from checks.asking.advice import types_of
from checks.explain.cases import ordered_body
from checks.explain.tree import abbreviated, formula_of, shown_literal, source_text
from policy.language.source import NOWHERE
from policy.rules.program import Atom, Literal, Not, Program, Rule, Term, Var
from policy.values import STRING, Value

ROLE, PERMISSION, RELATION = "has_role", "has_permission", "has_relation"
ANY_NAME = "*"  # a rule about every role, or every permission
_NUMBER = re.compile(r"#\d+")  # tells variables of the same name apart
MAX_LABEL = 44  # characters
MAX_GRANTS = 120  # of one type


@dataclass(frozen=True, slots=True)
class Mark:
    """What a grant starts from or leads to: a role or permission of the type itself, or something outside of it."""

    kind: str  # role, permission, relation, or condition
    label: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A rule as an edge: whoever has all sources has the target."""

    sources: tuple[Mark, ...]
    target: Mark
    line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """One type, what it declares, and what grants it."""

    type: str | None  # None: what holds without a resource
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    relations: tuple[tuple[str, str], ...]
    grants: tuple[Grant, ...]
    hidden: int


def sheets_of(program: Program) -> list[Sheet]:
    """Return a sheet for each type with roles, permissions or relations, and one for what is global."""
    found = [
        _sheet(program, name, each.roles, each.permissions, tuple(each.relations.items()))
        for name, each in program.types.items()
    ]
    if program.has_global:
        found.append(_sheet(program, None, program.global_roles, program.global_permissions, ()))
    return [each for each in found if each.roles or each.permissions or each.relations or each.grants]


def other_rules(program: Program) -> list[tuple[int, str]]:
    """Return line and text of the rules that are on no sheet."""
    shown = {grant.text for sheet in sheets_of(program) for grant in sheet.grants}
    written = (rule for rule in program.rules if rule.origin != NOWHERE and rule.head.predicate not in program.helpers)
    texts = ((program.source.position(rule.origin.start)[0], source_text(program, rule.origin)) for rule in written)
    return list(dict.fromkeys((line, text) for line, text in texts if text not in shown))


def _sheet(
    program: Program, name: str | None, roles: Iterable[str], permissions: Iterable[str],
    relations: tuple[tuple[str, str], ...],
) -> Sheet:  # fmt: skip
    grants = list(dict.fromkeys(_grants(program, name)))
    shown, hidden = tuple(grants[:MAX_GRANTS]), len(grants[MAX_GRANTS:])
    return Sheet(name, tuple(roles), tuple(permissions), relations, shown, hidden)


def _grants(program: Program, name: str | None) -> Iterator[Grant]:
    arity = 2 if name is None else 3
    for predicate, kind in ((ROLE, "role"), (PERMISSION, "permission")):
        for rule in program.rules_by_predicate.get((predicate, arity), ()):
            if rule.origin != NOWHERE and (name is None or name in types_of(rule, rule.head.args[2])):
                yield from _grants_of_rule(program, rule, Mark(kind, _label(rule.head.args[1])))


def _grants_of_rule(program: Program, rule: Rule, target: Mark) -> Iterator[Grant]:
    line, text = program.source.position(rule.origin.start)[0], source_text(program, rule.origin)
    alternatives: list[list[Literal]] = [[]]
    for literal in ordered_body(rule):
        parts = _alternatives(program, literal)
        alternatives = [[*each, *part] for each in alternatives for part in parts][:MAX_GRANTS]
    for body in alternatives:
        sources = tuple(dict.fromkeys(_sources(program, rule, body))) or (Mark("condition", "everyone"),)
        yield Grant(sources, target, line, text)


def _alternatives(program: Program, literal: Literal) -> list[list[Literal]]:
    """Return an `or` as the conditions of each of its sides, any other literal as its only alternative."""
    if isinstance(literal, Atom) and literal.predicate in program.helpers:
        rules = program.rules_by_predicate.get((literal.predicate, len(literal.args)), ())
        if all(rule.head.args == literal.args for rule in rules):
            return [list(rule.body) for rule in rules]
    return [[literal]]


def _sources(program: Program, rule: Rule, body: list[Literal]) -> Iterator[Mark]:
    actor, resource = rule.head.args[0], rule.head.args[2] if len(rule.head.args) > 2 else None
    related = [each for each in body if _is_link(each, resource)]
    links = {each.args[2]: each for each in related if isinstance(each.args[2], Var) and each.args[2] != actor}
    used: set[Atom] = set()
    for literal in body:
        match literal:
            case Atom("has_role" | "has_permission" as predicate, (who, name, thing)) if who == actor:
                if thing == resource:
                    yield Mark("role" if predicate == ROLE else "permission", _label(name))
                elif thing in links:
                    used.add(links[thing])
                    yield Mark("relation", f"{_label(name)} on {_label(links[thing].args[1])}")
                else:
                    yield _condition(program, literal)
            case Atom("has_relation", (thing, name, who)) if thing == resource and who == actor:
                yield Mark("relation", _label(name))
            case Atom("has_role" | "has_permission", (who, name)) if who == actor:
                yield Mark("condition", f"global {_label(name)}")
            case _ if literal not in links.values():
                yield _condition(program, literal)
    for link in links.values():
        if link not in used:
            yield _condition(program, link)


def _is_link(literal: Literal, resource: Term | None) -> TypeGuard[Atom]:
    return isinstance(literal, Atom) and literal.predicate == RELATION and literal.args[0] == resource


def _condition(program: Program, literal: Literal) -> Mark:
    if isinstance(literal, Not) and literal.atom.predicate in program.helpers:
        text = f"not ({formula_of(program, literal.atom.predicate, len(literal.atom.args))})"
    else:
        text = shown_literal(program, literal, {}, 0) if _is_ground(literal) else _NUMBER.sub("", str(literal))
    return Mark("condition", abbreviated(text, MAX_LABEL))


def _is_ground(literal: Literal) -> bool:
    return isinstance(literal, Atom) and all(isinstance(arg, Value) for arg in literal.args)


def _label(term: object) -> str:
    return term.id if isinstance(term, Value) and term.type == STRING else ANY_NAME
