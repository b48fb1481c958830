"""What no fact can ever make matter in a policy: rules without effect, permissions that nobody can have, and the like.

Facts of `allow` and of `has_permission` do not count where rules derive them: they would bypass the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from checks.analysis.questions import ALLOW, Permission, derived, differing, holds, permission_goal, replay
from checks.analysis.search import Claim, Finding, Side, Solver, Verdict, searched
from checks.analysis.slices import goal_of, sliced
from checks.asking import run
from policy.language import ast, parse
from policy.language.source import Problem, Span
from policy.rules.program import Atom, Program, Types
from policy.values import ACTOR, RESOURCE, STRING, Value

_IDS = 2  # of each type: more are searched only to compare policies
DeclaredNames = dict[tuple[str, str, str], Span]  # by block, keyword and name


def deep_notices(program: Program, seconds: float) -> tuple[list[Problem], bool]:
    """Return a notice for each part of the policy that has no effect, and whether there was time to check all parts."""
    with run.in_memory(), Solver(seconds) as solver:
        names = _declared(program)
        found = [*_unused_roles(program, names), *_permissions(program, names, solver), *_idle_rules(program, solver)]
        return sorted(found, key=lambda problem: problem.span.start), solver.left > 0


def _declared(program: Program) -> DeclaredNames:
    found: DeclaredNames = {}
    for block in parse(program.source).items:
        if isinstance(block, ast.Block) and block.name is not None:
            for item in block.items:
                if isinstance(item, ast.NameList):
                    for name in item.names:
                        found[block.name.text, item.keyword.text, name.text] = name.span
    return found


def _notice(span: Span, message: str, finding: Finding | None = None) -> Problem:
    extent = "proved" if finding is None else finding.extent
    return Problem(f"{message} ({extent})", span, severity="notice")


# ---- roles ---------------------------------------------------------------------------------------------------------


def _unused_roles(program: Program, names: DeclaredNames) -> Iterator[Problem]:
    """Yield the roles that no rule on which a decision depends asks for."""
    everything = program.subtypes[ACTOR] | program.subtypes[RESOURCE]
    goals = [
        goal_of(ALLOW, [everything, frozenset((STRING,)), everything][:arity])
        for name, arity in program.rules_by_predicate
        if name == ALLOW and arity <= 3
    ]
    asked = [goal for goal in sliced(program, goals).rules if goal.predicate == "has_role" and len(goal.slots) == 3]
    for (block, keyword, name), span in names.items():
        if keyword == "roles" and program.knows(block):
            wanted = goal_of("has_role", [everything, Value(STRING, name), frozenset((block,))])
            if not any(all(one.meet(other) for one, other in zip(goal.slots, wanted.slots)) for goal in asked):
                yield _notice(span, f'the role "{name}" grants nothing')


# ---- permissions ---------------------------------------------------------------------------------------------------


def _permissions(program: Program, names: DeclaredNames, solver: Solver) -> Iterator[Problem]:
    actors = program.subtypes[ACTOR]
    by_type: dict[str, dict[str, Claim]] = {}
    for block, keyword, name in names:
        if keyword == "permissions" and program.knows(block):
            by_type.setdefault(block, {})[name] = _claim(program, actors, name, block)
    claims = [claim for each in by_type.values() for claim in each.values()]
    searched(claims, solver, run.current_time(), replay, _IDS)
    for block, each in by_type.items():
        for name, claim in each.items():
            if claim.finding.is_enough:
                yield _notice(names[block, "permissions", name], f'nobody can have "{name}"', claim.finding)
        yield from _equal_permissions(program, actors, block, each, names, solver)


def _claim(program: Program, actors: Types, name: str, block: str, other: str | None = None) -> Claim:
    sides = [
        Side(program, permission_goal(Permission(3, each, block), actors, program)) for each in (name, other) if each
    ]
    return Claim(sides[0], sides[1] if other else None, never=derived(program))


def _equal_permissions(
    program: Program, actors: Types, block: str, claims: dict[str, Claim], names: DeclaredNames, solver: Solver
) -> Iterator[Problem]:
    """Yield the permissions that everybody has who has another one: those that no facts tell apart."""
    known = {name: claim.finding.witness for name, claim in claims.items() if claim.finding.witness}
    traits: dict[tuple[bool, ...], list[str]] = {}
    for name in known:
        held = tuple(
            holds(
                program, each.facts, Atom(ALLOW, (each.atom.args[0], Value(STRING, name), each.atom.args[2])), each.now
            )
            for each in known.values()
        )
        traits.setdefault(held, []).append(name)
    for first, *others in traits.values():
        for name in others:
            pair = [_claim(program, actors, *each) for each in ((first, block, name), (name, block, first))]
            searched(pair, solver, run.current_time(), replay, _IDS)
            if all(claim.finding.is_enough for claim in pair):
                weakest = min((claim.finding for claim in pair), key=lambda each: each.verdict == Verdict.PROVED)
                yield _notice(names[block, "permissions", name], f'"{name}" is the same as "{first}"', weakest)


# ---- rules ---------------------------------------------------------------------------------------------------------


def _idle_rules(program: Program, solver: Solver) -> Iterator[Problem]:
    """Yield the rules without which every decision would be the same."""
    for origin in program.written:
        without = replace(program, rules=tuple(rule for rule in program.rules if rule.origin != origin))
        claims = [
            Claim(*sides, excluded, derived(program))
            for goal, excluded in differing(program, without).values()
            for sides in ((Side(program, goal), Side(without, goal)), (Side(without, goal), Side(program, goal)))
        ]
        for claim in claims:
            searched([claim], solver, run.current_time(), replay, _IDS)
            if not claim.finding.is_enough:
                break
        else:
            if claims:
                weakest = min((claim.finding for claim in claims), key=lambda each: each.verdict == Verdict.PROVED)
                yield _notice(origin, "this rule changes no decision", weakest)
