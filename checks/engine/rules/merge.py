"""Clauses that differ in one constant of one fact -> one clause with a list of constants.

p(u, r) if fact has_role(u, "reader", r)          p(u, r) if fact has_role(u, n, r) and n in ["reader", "writer"]
p(u, r) if fact has_role(u, "writer", r)      ->
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from functools import cache

from checks.engine.rules.clauses import (
    Call,
    Clause,
    ClausesOf,
    Const,
    Literal,
    Member,
    Pattern,
    Scan,
    Var,
    canonical,
    substituted,
    terms_of,
    variables_of,
)
from checks.engine.rules.limits import tick

_HOLE = Var(-1)


def merged(clauses: ClausesOf) -> ClausesOf:
    @cache
    def merged_clauses(pattern: Pattern) -> tuple[Clause, ...]:
        many = clauses(pattern)
        while len(fewer := _merged_once(many)) < len(many):
            many = fewer
        return many

    return merged_clauses


def _merged_once(clauses: tuple[Clause, ...]) -> tuple[Clause, ...]:
    """Merge the first group of clauses that differ in one constant; return the same clauses where there is none."""
    groups: dict[Clause, list[tuple[int, frozenset[str]]]] = {}
    keys = [_merge_key(clause) for clause in clauses]
    times = Counter(keys)
    for index, clause in enumerate(clauses):
        tick()
        if times[keys[index]] > 1:
            for holed, ids in _holed(clause):
                groups.setdefault(holed, []).append((index, ids))
    for holed, group in groups.items():
        if len({index for index, _ in group}) > 1:
            ids = frozenset().union(*(each for _, each in group))
            taken = {index for index, _ in group}
            at = min(taken)
            return tuple(
                _filled(holed, ids) if index == at else clause
                for index, clause in enumerate(clauses)
                if index == at or index not in taken
            )
    return clauses


def _merge_key(clause: Clause) -> Hashable:
    """Return what clauses must have in common to be merged: quick to compare, before constants are taken out of any."""
    return clause.params, tuple([_about(each) for each in clause.body if not isinstance(each, Member)])


def _about(literal: Literal) -> Hashable:
    match literal:
        case Scan(signature):
            return signature
        case Call(predicate):
            return predicate
    return type(literal).__name__


def _holed(clause: Clause) -> list[tuple[Clause, frozenset[str]]]:
    """Return the clause with a hole in place of one constant of a fact, once for each such constant; and the constant.

    A variable of a fact that only a list of constants limits is taken out in the same way, with all of the list.
    """
    found = []
    for place, literal in enumerate(clause.body):
        if not isinstance(literal, Scan):
            continue
        for index, arg in enumerate(literal.args):
            if isinstance(arg, Const):
                found.append((_with_hole(clause, literal, place, index, None), frozenset((arg.id,))))
            elif isinstance(arg, Var) and (member := _only_member(clause, literal, arg)):
                found.append((_with_hole(clause, literal, place, index, member), frozenset(member.ids)))
    return found


def _only_member(clause: Clause, scan: Scan, variable: Var) -> Member | None:
    """Return the list that the variable is in, if only this list and one argument of the fact mention the variable."""
    members = [each for each in clause.body if isinstance(each, Member) and each.variable == variable]
    others = [each for each in clause.body if each not in members and each is not scan]
    used = variable in variables_of(others) or variable in clause.params or scan.args.count(variable) > 1
    return members[0] if len(members) == 1 and not used else None


def _with_hole(clause: Clause, scan: Scan, place: int, index: int, member: Member | None) -> Clause:
    args = (*scan.args[:index], _HOLE, *scan.args[index + 1 :])
    body: list[Literal] = [replace(scan, args=args) if each is scan else each for each in clause.body]
    kept = canonical(Clause(clause.params, tuple(each for each in body if each is not member)))
    hole = terms_of(kept.body[_place_without(clause, place, member)])[index]
    assert isinstance(hole, Var)
    back = {hole: _HOLE}
    return Clause(clause.params, tuple(substituted(each, back) for each in kept.body))


def _place_without(clause: Clause, place: int, member: Member | None) -> int:
    return place - sum(1 for each in clause.body[:place] if each is member)


def _filled(holed: Clause, ids: frozenset[str]) -> Clause:
    """Return the clause with a new variable in its hole, and a list of the constants that the variable may be."""
    name = Var(max((variable.number for variable in holed.variables), default=0) + 1)
    body = tuple(substituted(literal, {_HOLE: name}) for literal in holed.body)
    return canonical(Clause(holed.params, (*body, Member(name, tuple(sorted(ids))))))
