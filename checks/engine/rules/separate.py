"""Recursion that moves one argument at a time -> reachability of each argument on its own.

    has_role(u, r, f) if has_group(u, t) and has_role(t, r, f)              a hop of argument 0
    has_role(u, r, f) if has_relation(f, "parent", g) and has_role(u, r, g)     a hop of argument 2

becomes, where each hop is there whatever the other arguments are,

    has_role(u, r, f) if reach0(u, w) and reach2(f, g) and core(w, r, g)

with `core` the rules that are no hops. Groups and folders are then followed apart and meet at the facts, instead
of as pairs: a sum where there was a product. Where one rule of the recursion is no hop, as

    has_role(u, r, f) if has_relation(f, "parent", g) and has_role(u, r, g) and not barred(u, f)

`core` would recurse as well, and each of its steps would follow all groups again: then nothing is followed apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from checks.engine.rules.clauses import (
    Call,
    Clause,
    Cmp,
    Literal,
    Neg,
    Pattern,
    Var,
    canonical,
    pattern_of,
    variables_of,
)
from checks.engine.rules.limits import tick

CORE = " core"
REACH = " reach"

Hops = dict[str, tuple[tuple[Clause, str], ...]]  # from a type: ways (x, y) if …, and the type of y


@dataclass(frozen=True, slots=True)
class Factors:
    """The arguments that hop, with their hops, and every combination of types that hops lead to."""

    hops: tuple[tuple[int, Hops], ...]
    patterns: tuple[Pattern, ...]


def factors_of(
    pattern: Pattern,
    alternatives: Callable[[Pattern], tuple[Clause, ...]],
    component: Callable[[Pattern], int | None],
) -> Factors | None:
    """How the pattern's recursion falls apart; None where it does not, or not all of it."""
    ways: dict[Pattern, list[tuple[int, Clause, str]]] = {}
    queue = [pattern]
    while queue:
        tick()
        each = queue.pop(0)
        if each in ways:
            continue
        ways[each] = []
        for clause in alternatives(each):
            if hop := hop_of(clause, each, component):
                ways[each].append(hop)
            elif _recurses(clause, each, component):
                return None
        queue += [_moved(each, index, name) for index, _, name in ways[each]]
    hops = _independent(ways)
    if not hops or not any(_is_cyclic(table) for table in hops.values()):
        return None
    return Factors(tuple(sorted(hops.items())), tuple(ways))


def _recurses(clause: Clause, pattern: Pattern, component: Callable[[Pattern], int | None]) -> bool:
    own = component(pattern)
    calls = (each for each in clause.body if isinstance(each, Call))
    return own is not None and any(component(pattern_of(call)) == own for call in calls)


def _moved(pattern: Pattern, index: int, name: str) -> Pattern:
    return replace(pattern, types=(*pattern.types[:index], name, *pattern.types[index + 1 :]))


def _independent(ways: dict[Pattern, list[tuple[int, Clause, str]]]) -> dict[int, Hops] | None:
    """The hops of each argument by its type; None where they depend on another argument's type."""
    hops: dict[int, Hops] = {}
    moving = {index for found in ways.values() for index, _, _ in found}
    for pattern, found in ways.items():
        for index in moving:
            own = tuple((clause, name) for at, clause, name in found if at == index)
            table = hops.setdefault(index, {})
            if table.setdefault(pattern.types[index], own) != own:
                return None
    return hops


def _is_cyclic(table: Hops) -> bool:
    def reaches(start: str, name: str, seen: set[str]) -> bool:
        following = {target for _, target in table.get(name, ())} - seen
        return start in following or any(reaches(start, each, seen | following) for each in following)

    return any(reaches(name, name, set()) for name in table)


def hop_of(
    clause: Clause, pattern: Pattern, component: Callable[[Pattern], int | None]
) -> tuple[int, Clause, str] | None:
    """The argument that the clause moves, the way (x, y) it moves it, and the type it moves it to."""
    free = [param for param, const in zip(clause.params, pattern.consts) if const is None]
    if not all(isinstance(param, Var) for param in free) or len(set(free)) < len(free):
        return None  # holds for some arguments only
    for place, call in enumerate(clause.body):
        if isinstance(call, Call) and call.predicate == pattern.predicate:
            rest = clause.body[:place] + clause.body[place + 1 :]
            own = {component(pattern), component(pattern_of(call))} - {None}
            hop = _hop(clause, call, rest, own, component)
            if hop is not None:
                return hop
    return None


def _hop(
    clause: Clause,
    call: Call,
    rest: tuple[Literal, ...],
    own: set[int | None],
    component: Callable[[Pattern], int | None],
) -> tuple[int, Clause, str] | None:
    moved = [index for index, (param, arg) in enumerate(zip(clause.params, call.args)) if param != arg]
    if len(moved) != 1 or len(clause.params) != len(call.args):
        return None  # a constant that changes is a move too
    index = moved[0]
    start, end = clause.params[index], call.args[index]
    kept = {param for at, param in enumerate(clause.params) if at != index}
    positive = variables_of(each for each in rest if not isinstance(each, (Neg, Cmp)))
    if not (isinstance(start, Var) and isinstance(end, Var)) or end in clause.params or start in kept:
        return None
    if not {start, end} <= positive or kept & variables_of(rest) or clause.params.count(start) > 1:
        return None
    if len(kept & set(variables_of((call,)))) != len([p for p in kept if isinstance(p, Var)]):
        return None
    calls = (each.call if isinstance(each, Neg) else each for each in rest if isinstance(each, (Call, Neg)))
    if any(component(pattern_of(each)) in own for each in calls):
        return None
    return index, canonical(Clause((start, end), rest)), call.types[index]


# ---- clauses of what was factored --------------------------------------------------------------------------------


def factored(pattern: Pattern, factors: Factors, reach_name: Callable[[int], str]) -> list[Clause]:
    """The pattern's clauses: for each combination of types, reach it and meet the core there."""
    params = tuple(const or Var(i, type=name) for i, (const, name) in enumerate(zip(pattern.consts, pattern.types)))
    clauses = []
    for target in factors.patterns:
        args = list(params)
        body: list[Literal] = []
        for index, _ in factors.hops:
            types = (pattern.types[index], target.types[index])
            args[index] = Var(len(params) + index, type=types[1])
            body.append(Call(reach_name(index), types, (params[index], args[index])))
        body.append(Call(pattern.predicate + CORE, target.types, tuple(args)))
        clauses.append(Clause(params, tuple(body)))
    return clauses


def reach_clauses(name: str, types: tuple[str, str], hops: Hops, backward: bool) -> list[Clause]:
    """`reach(x, x)`, and one hop more at the start or, backward, at the end."""
    start, end = types
    own = Var(0, type=start)
    clauses = [Clause((own, own), ())] if start == end else []
    if backward:
        for middle, ways in hops.items():
            for way, target in ways:
                if target == end and leads(hops, start, middle):
                    # way: (x, y) if …; reach(s, y) if reach(s, x) and …
                    source = _another(way, start)
                    call = Call(name, (start, middle), (source, way.params[0]))
                    clauses.append(Clause((source, way.params[1]), (*way.body, call)))
        return clauses
    for way, target in hops.get(start, ()):
        if not leads(hops, target, end):
            continue
        last = _another(way, end)
        call = Call(name, (target, end), (way.params[1], last))
        clauses.append(Clause((way.params[0], last), (*way.body, call)))
    return clauses


def leads(hops: Hops, start: str, end: str) -> bool:
    """Whether hops go from one type to the other."""
    seen, queue = {start}, [start]
    while queue:
        for _, target in hops.get(queue.pop(), ()):
            if target not in seen:
                seen.add(target)
                queue.append(target)
    return end in seen


def _another(clause: Clause, name: str) -> Var:
    """A variable of that type which the clause does not have."""
    return Var(1 + max(variable.number for variable in variables_of((*clause.body, _pair(clause)))), type=name)


def _pair(clause: Clause) -> Call:
    return Call("", (), clause.params)
