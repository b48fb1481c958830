"""Transitive clauses of a predicate -> linear ones, whose second call is to the predicate without those clauses.

p(x, z) if p(x, y) and p(y, z) and not q(y)          p(x, z) if p(x, y) and p base(y, z) and not q(y)
p(x, y) if fact r(x, y)                          ->  p(x, y) if fact r(x, y)
                                                     p base(x, y) if fact r(x, y)

Literals such as `not q(y)` are guards: they say which values two hops may meet at, and nothing of where a path begins
or ends. So it makes no difference in which order hops are joined, and all but the last one can be joined first.

This is done only where no other clause of the predicate recurses directly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from checks.engine.rules.clauses import (
    Call,
    Clause,
    ClausesOf,
    ClauseSubset,
    Literal,
    Pattern,
    Var,
    mentioned,
    variables_of,
)


def linearised(clauses: ClausesOf) -> ClausesOf:
    """The pass."""

    @cache
    def linear(pattern: Pattern) -> tuple[Clause, ...]:
        if pattern.subset == ClauseSubset.BASE:
            whole = replace(pattern, subset=ClauseSubset.WHOLE)
            return tuple(clause for clause in clauses(whole) if not _is_transitive(clause, whole))
        return _with_bases(clauses(pattern), pattern)

    return linear


def _with_bases(clauses: tuple[Clause, ...], pattern: Pattern) -> tuple[Clause, ...]:
    """Return the clauses with the transitive ones made linear; unchanged where another clause mentions the predicate.

    Without such a clause, both forms mean the same.
    """
    transitive = [clause for clause in clauses if _is_transitive(clause, pattern)]
    others = [clause for clause in clauses if clause not in transitive]
    if any(call.predicate == pattern.predicate for clause in others for call in mentioned(clause.body)):
        return clauses
    return (*others, *(_based(clause, pattern) for clause in transitive))


def _based(clause: Clause, pattern: Pattern) -> Clause:
    """Return the transitive clause with its second call made to the base."""
    hops = _hops(clause, pattern)
    assert hops, "only transitive clauses have a base"
    return Clause(clause.params, (hops.one, replace(hops.two, subset=ClauseSubset.BASE), *hops.guards))


def _is_transitive(clause: Clause, pattern: Pattern) -> bool:
    """Say whether the clause is transitive, and the base of its second call is reached under the same guards.

    From a user to a team, and on from team to team, other clauses of other types may have other guards.
    """
    hops = _hops(clause, pattern)
    if hops is None or hops.one.types != pattern.types:
        return False
    return not hops.guards or hops.two.types == pattern.types


@dataclass(frozen=True, slots=True)
class _Hops:
    """A transitive clause: `p(x, z) if p(x, y) and p(y, z)`, with equal constants for all other arguments."""

    one: Call  # from x to y
    two: Call  # from y to z
    guards: tuple[Literal, ...]  # on y


def _hops(clause: Clause, pattern: Pattern) -> _Hops | None:
    """Return the hops of a transitive clause, from a value to others of any types; None where it is not transitive."""
    calls = [each for each in clause.body if isinstance(each, Call) and _is_of(each, pattern)]
    guards = tuple(each for each in clause.body if each not in calls)
    ends = [index for index, param in enumerate(clause.params) if isinstance(param, Var)]
    if len(calls) != 2 or len(ends) != 2 or any(_is_of(call, pattern) for call in mentioned(guards)):
        return None
    first, last = ends
    x, z = clause.params[first], clause.params[last]
    if x == z or not {x, z}.isdisjoint(variables_of(guards)):
        return None
    for one, two in (calls, calls[::-1]):
        middle = (index for index in range(len(clause.params)) if index not in ends)
        same = all(one.args[index] == two.args[index] == clause.params[index] for index in middle)
        joined = one.args[last] == two.args[first] and isinstance(one.args[last], Var)
        outer = one.args[first] == x and two.args[last] == z
        if same and joined and outer and one.args[last] not in clause.params:
            return _Hops(one, two, guards)
    return None


def _is_of(call: Call, pattern: Pattern) -> bool:
    return (call.predicate, call.subset, len(call.args)) == (pattern.predicate, pattern.subset, len(pattern.types))
