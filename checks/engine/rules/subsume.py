"""Clauses -> without those that another clause subsumes, that is, where the other one holds whenever they do.

    p(x) if member(x, y) and fact s(y)          p(x) if member(x, y) and fact s(y)
    p(x) if owner(x, y) and fact s(y)       ->

where `member(x, y) if owner(x, y)`: whenever the second clause holds, the first one does.
"""

from __future__ import annotations

from collections.abc import Callable

from checks.engine.rules.clauses import Call, Clause, ClausesOf, Literal, Pattern, Term
from checks.engine.rules.limits import tick

Implying = Callable[[Call], set[Call]]  # the call, and others that imply it


def subsumed(clauses: ClausesOf, implying: Implying) -> ClausesOf:
    def needed(pattern: Pattern) -> tuple[Clause, ...]:
        return _without_subsumed(clauses(pattern), implying)

    return needed


def _without_subsumed(clauses: tuple[Clause, ...], implying: Implying) -> tuple[Clause, ...]:
    """Return the clauses without those that differ from another in a single call, which implies the other's call."""
    groups: dict[tuple[tuple[Term, ...], tuple[Literal, ...]], list[tuple[int, Call]]] = {}
    for index, clause in enumerate(clauses):
        for place, literal in enumerate(clause.body):
            if isinstance(literal, Call):
                rest = clause.body[:place] + clause.body[place + 1 :]
                groups.setdefault((clause.params, rest), []).append((index, literal))
    dropped: set[int] = set()
    for group in groups.values():
        if len(group) == 1:
            continue
        implied = {index: implying(call) for index, call in group}
        for index, call in group:
            tick()
            rivals = (each for rank, each in implied.items() if rank != index and rank not in dropped)
            if index not in dropped and any(call in each for each in rivals):
                dropped.add(index)
    return tuple(clause for index, clause in enumerate(clauses) if index not in dropped)
