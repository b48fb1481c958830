"""Hops: recursive clauses that change one argument and pass the others on. And where hops lead.

    has_role(u, r, f) if has_relation(f, "parent", g) and has_role(u, r, g)

is a hop of the third argument, from f to g, whatever u and r are. As a `Hop`, it is
`(f, g) if has_relation(f, "parent", g)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from checks.engine.rules.clauses import (
    Call,
    Clause,
    ClausesOf,
    Cmp,
    Literal,
    Neg,
    Pattern,
    Scan,
    Term,
    Var,
    canonical,
    mentioned,
    pattern_of,
    substituted,
    substituted_terms,
    variables_of,
)
from policy.rules.components import Components, reachable

ComponentOf = Callable[[Pattern], int | None]


@dataclass(frozen=True, slots=True)
class Hop:
    """`(x, y) if …`, and the type of y."""

    clause: Clause
    target: str

    def __str__(self) -> str:
        return str(self.clause)


Hops = dict[str, tuple[Hop, ...]]  # the hops of one argument, by the type that they start from


def reaches(hops: Hops, start: str, end: str) -> bool:
    """Say whether any number of hops, or none, lead from one type to the other."""
    return end in reachable((start,), lambda name: _targets(hops, name))


def are_cyclic(hops: Hops) -> bool:
    """Say whether hops lead from some type back to it."""
    components = Components(lambda name: _targets(hops, name))
    return any(components.number(name) is not None for name in hops)


def _targets(hops: Hops, name: str) -> list[str]:
    return [hop.target for hop in hops.get(name, ())]


# ---- which clauses hop ---------------------------------------------------------------------------------------------


def hop_of(clause: Clause, pattern: Pattern, component: ComponentOf) -> tuple[int, Hop] | None:
    """Return the index of the argument that the clause moves, and the hop; None where the clause is no hop.

    The rest of the body must not recurse in the component of the clause's pattern, nor in that of the pattern called.
    """
    free = [param for param, const in zip(clause.params, pattern.consts) if const is None]
    if not all(isinstance(param, Var) for param in free) or len(set(free)) < len(free):
        return None  # the clause holds for some arguments only
    for place, call in enumerate(clause.body):
        if isinstance(call, Call) and (call.predicate, call.subset) == (pattern.predicate, pattern.subset):
            rest = clause.body[:place] + clause.body[place + 1 :]
            index = _moved(clause, call, rest)
            own = {component(pattern), component(pattern_of(call))}
            if index is not None and not _takes_part(rest, own, component):
                ends = (clause.params[index], call.args[index])
                return index, Hop(canonical(Clause(ends, rest)), call.types[index])
    return None


def with_call(clause: Clause, pattern: Pattern, clauses: ClausesOf) -> Clause:
    """Return the clause with a fact of the pattern's predicate turned back into a call, so that it is seen to hop.

    has_role(u, r, t) if has_relation(t, "parent", s) and fact has_role(u, r, s)
    ->  has_role(u, r, t) if has_relation(t, "parent", s) and has_role(u, r, s)

    This is done if the call has a single clause, which reads the fact, and if all of that clause's body is in this one.
    Other clauses are returned as they are.
    """
    for scan in clause.body:
        if isinstance(scan, Scan) and scan.signature.predicate == pattern.predicate:
            target = replace(pattern, types=scan.signature.types)
            found = clauses(target)
            called = _called_instead(clause, scan, target, found[0]) if len(found) == 1 else None
            if called is not None:
                return called
    return clause


def _called_instead(clause: Clause, scan: Scan, target: Pattern, only: Clause) -> Clause | None:
    """Return the clause with the body of `only`, the single clause of `target`, replaced by a call of `target`.

    None where that body is not part of the clause, or where variables that the call would hide are used elsewhere.
    """
    own = [each for each in only.body if isinstance(each, Scan)]
    if len(own) != 1 or own[0].signature != scan.signature or len(clause.body) <= len(only.body):
        return None
    names: dict[Var, Term] = {}
    for inner, outer in zip(own[0].args, scan.args):
        if (names.setdefault(inner, outer) if isinstance(inner, Var) else inner) != outer:
            return None
    if not names.keys() >= set(only.variables):
        return None
    body = [substituted(each, names) for each in only.body]
    rest = tuple(each for each in clause.body if each not in body)
    args = substituted_terms(only.params, names)
    hidden = variables_of(body) - set(args)
    call = Call(target.predicate, target.types, args, target.subset)
    if pattern_of(call) != target or not set(body) <= set(clause.body):
        return None
    if hidden & (variables_of(rest) | set(clause.params)):
        return None
    return Clause(clause.params, (*rest, call))


def _moved(clause: Clause, call: Call, rest: tuple[Literal, ...]) -> int | None:
    """Return the index of the only argument in which the call differs from the head.

    None where there is no such argument, or where the rest of the body does not bind both of its variables or mentions
    other arguments.
    """
    moved = [index for index, (param, arg) in enumerate(zip(clause.params, call.args)) if param != arg]
    if len(moved) != 1 or len(clause.params) != len(call.args):
        return None  # a constant that changes counts as moved, too
    start, end = clause.params[moved[0]], call.args[moved[0]]
    kept = {param for at, param in enumerate(clause.params) if at != moved[0]}
    if not (isinstance(start, Var) and isinstance(end, Var)) or end in clause.params or start in kept:
        return None
    positive = variables_of(each for each in rest if not isinstance(each, (Neg, Cmp)))
    is_apart = {start, end} <= positive and not kept & variables_of(rest)
    return moved[0] if is_apart else None


def _takes_part(literals: tuple[Literal, ...], own: set[int | None], component: ComponentOf) -> bool:
    """Say whether a call among the literals, negated ones included, recurses in one of the components."""
    return any(component(pattern_of(call)) in own - {None} for call in mentioned(literals))
