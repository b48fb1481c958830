"""Clauses -> only those that some facts can make true.

    p(x) if q(x) and fact r(x)          p(x) if fact s(x)
    p(x) if fact s(x) and not q(x)  ->
    q(x) if p(x) and q(x)

A call is dead if it has no finite proof, whatever the facts: here, each proof of `q` needs another proof of `q`, and
the policy accepts no facts of `q`.
"""

from __future__ import annotations

from checks.engine.rules.clauses import Clause, ClausesOf, Neg, Pattern, calls_made, mentioned, pattern_of
from checks.engine.rules.limits import tick
from policy.rules.components import reachable


class Live:
    """The pass. It decides a pattern together with all that it leads to, since recursion cannot be decided in parts."""

    def __init__(self, clauses: ClausesOf):
        self._clauses = clauses
        self._found: dict[Pattern, tuple[Clause, ...]] = {}
        self._dead: set[Pattern] = set()

    def __call__(self, pattern: Pattern) -> tuple[Clause, ...]:
        if pattern not in self._found:
            self._decide(pattern)
        return self._found[pattern]

    def _decide(self, start: Pattern) -> None:
        every: dict[Pattern, tuple[Clause, ...]] = {}

        def following(pattern: Pattern) -> list[Pattern]:
            every[pattern] = self._clauses(pattern)
            called = (pattern_of(call) for clause in every[pattern] for call in mentioned(clause.body))
            return [each for each in called if each not in self._found]

        reachable((start,), following, tick)
        self._dead |= self._dead_among(every)
        if not self._dead:
            self._found |= every
            return
        for pattern, clauses in every.items():
            self._found[pattern] = tuple(self._without_idle_tests(each) for each in clauses if self._can_hold(each))

    def _dead_among(self, every: dict[Pattern, tuple[Clause, ...]]) -> set[Pattern]:
        """Return the patterns outside of the least fixpoint of "some clause of it calls only live patterns".

        Negations do not count as calls.
        """
        needed = {pattern: [calls_made((clause,)) for clause in clauses] for pattern, clauses in every.items()}
        dead = set(every)
        while True:
            holding = dead | self._dead
            alive = {pattern for pattern in dead if any(holding.isdisjoint(calls) for calls in needed[pattern])}
            if not alive:
                return dead
            dead -= alive

    def _can_hold(self, clause: Clause) -> bool:
        return self._dead.isdisjoint(calls_made((clause,)))

    def _without_idle_tests(self, clause: Clause) -> Clause:
        """Return the clause without negations of dead calls, which always hold."""
        idle = [each for each in clause.body if isinstance(each, Neg) and pattern_of(each.call) in self._dead]
        return Clause(clause.params, tuple(each for each in clause.body if each not in idle)) if idle else clause
