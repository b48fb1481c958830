"""Transitive clauses of a relation -> linear ones, whose second call is to the relation without those clauses.

p(x, z) if p(x, y) and p(y, z)          p(x, z) if p(x, y) and p base(y, z)
p(x, y) if fact q(x, y)             ->  p(x, y) if fact q(x, y)
                                        p base(x, y) if fact q(x, y)

This is done only where no other clause of the relation recurses directly.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from checks.engine.rules.clauses import Call, Clause, ClausesOf, Part, Pattern, Var, mentioned


def linearised(clauses: ClausesOf) -> ClausesOf:
    """The pass."""

    @cache
    def linear(pattern: Pattern) -> tuple[Clause, ...]:
        if pattern.part == Part.BASE:
            whole = replace(pattern, part=Part.WHOLE)
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
    one, two = hops
    return Clause(clause.params, (one, replace(two, part=Part.BASE)))


def _is_transitive(clause: Clause, pattern: Pattern) -> bool:
    """Say whether the clause is `p(x, z) if p(x, y) and p(y, z)`, with equal constants for all other arguments."""
    return _hops(clause, pattern) is not None


def _hops(clause: Clause, pattern: Pattern) -> tuple[Call, Call] | None:
    """Return the calls from x to y and from y to z; None where the clause is not transitive."""
    calls = [each for each in clause.body if isinstance(each, Call)]
    if len(calls) != 2 or len(clause.body) != 2:
        return None
    own = (pattern.predicate, pattern.part, len(clause.params))
    if any((call.predicate, call.part, len(call.args)) != own for call in calls):
        return None
    ends = [index for index, param in enumerate(clause.params) if isinstance(param, Var)]
    if len(ends) != 2 or clause.params[ends[0]] == clause.params[ends[1]]:
        return None
    first, last = ends
    for one, two in (calls, calls[::-1]):
        middle = (index for index in range(len(clause.params)) if index not in ends)
        same = all(one.args[index] == two.args[index] == clause.params[index] for index in middle)
        joined = one.args[last] == two.args[first] and isinstance(one.args[last], Var)
        outer = one.args[first] == clause.params[first] and two.args[last] == clause.params[last]
        if same and joined and outer and one.args[last] not in clause.params and one.types == pattern.types:
            return one, two
    return None
