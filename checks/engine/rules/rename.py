"""Clauses that only call something by another name -> the clauses of what they call, at the ends of such chains.

    p(x, y) if q(y, x)                                  p(x, y) if fact s(y, x)
    q(x, y) if r(x, y)                              ->
    r(x, y) if fact s(x, y)

So `"read" if "reader"; "reader" if "writer"` becomes a few facts to look up, without calls. In all other clauses, a
call that only stored facts can make true becomes a look-up of those facts.
"""

from __future__ import annotations

from functools import cache

from checks.engine.rules.clauses import (
    Call,
    Clause,
    ClausesOf,
    Literal,
    Pattern,
    Scan,
    Var,
    canonical,
    is_bound,
    pattern_of,
    substituted,
)
from checks.engine.rules.hops import hop_of
from checks.engine.rules.limits import tick
from checks.engine.rules.unify import applied
from policy.rules.program import Signature


class Renamed:
    """The pass. It also knows which calls rename others, and which ones only facts can make true.

    It does not remember the clauses: the later passes `subsumed` and `merged` leave fewer, and `merged` keeps those.
    """

    def __init__(self, clauses: ClausesOf):
        self._clauses = clauses
        self._calls: dict[Pattern, frozenset[Call]] = {}  # on the chains of a pattern, its own call included
        self._stored: dict[Pattern, bool] = {}
        self._hops = cache(self._some_hop)

    def __call__(self, pattern: Pattern) -> tuple[Clause, ...]:
        clauses, self._calls[pattern] = self._walk(pattern)
        return clauses

    def implying(self, call: Call) -> set[Call]:
        """Return the call and all calls that it renames, directly or not: each of them implies the call."""
        pattern = pattern_of(call)
        if pattern not in self._calls:
            self._calls[pattern] = self._walk(pattern)[1]
        terms = {param: arg for param, arg in zip(pattern.params, call.args) if isinstance(param, Var)}
        return {substituted(each, terms) for each in self._calls[pattern]}

    def is_stored(self, pattern: Pattern) -> bool:
        """Say whether only facts can make the call true."""
        if pattern not in self._stored:
            clauses = self._clauses(pattern)
            is_fact = len(clauses) == 1 and len(clauses[0].body) == 1 and isinstance(clauses[0].body[0], Scan)
            self._stored[pattern] = is_fact
        return self._stored[pattern]

    def _walk(self, pattern: Pattern) -> tuple[tuple[Clause, ...], frozenset[Call]]:
        """Return the clauses at the ends of the pattern's chains, and the calls on those chains."""
        params = pattern.params
        start = Call(pattern.predicate, pattern.types, params, pattern.subset)
        queue, seen = [start], {start}
        clauses: dict[Clause, None] = {}
        for call in queue:  # grows during the loop
            for clause in self._clauses(pattern_of(call)):
                tick()
                is_own = clause.params == call.args == params
                made = clause if is_own else applied(clause, call.args, params)
                if made is None:
                    continue
                renamed = _renamed(made) if made.params == params else None
                if renamed is None or self._hops_apart(pattern, renamed):
                    clauses[canonical(self._with_facts(made))] = None
                elif renamed not in seen:
                    seen.add(renamed)
                    queue.append(renamed)
        return tuple(clauses), frozenset(seen)

    def _hops_apart(self, pattern: Pattern, call: Call) -> bool:
        """Say whether the call is of another predicate whose clauses hop. The chain ends before such a call, since that
        predicate's recursion is separated under its own name (see `separate`).
        """
        if (call.predicate, call.subset) == (pattern.predicate, pattern.subset):
            return False
        return self._hops(pattern_of(call))

    def _some_hop(self, pattern: Pattern) -> bool:
        return any(hop_of(clause, pattern, lambda _: None) for clause in self._clauses(pattern))

    def _with_facts(self, clause: Clause) -> Clause:
        body = tuple([self._as_fact(literal) for literal in clause.body])
        return clause if body == clause.body else Clause(clause.params, body)

    def _as_fact(self, literal: Literal) -> Literal:
        if isinstance(literal, Call) and self.is_stored(pattern_of(literal)):
            return Scan(Signature(literal.predicate, literal.types), literal.args)
        return literal


def _renamed(clause: Clause) -> Call | None:
    """Return the body if it is a single call whose arguments are all constants or parameters of the head."""
    match clause.body:
        case (Call() as call,) if all(is_bound(arg) or arg in clause.params for arg in call.args):
            return call
    return None
