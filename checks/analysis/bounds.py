"""How many ids of each type a counterexample needs at most, where that can be proved.

A claim "no facts make A true and B false" fails if some facts do. Unfolded, the rules of A and B are a formula of first
order logic over those facts. If it has the form "there are x1 … xn such that for all y1 … ym: …" (the class of Bernays,
Schönfinkel and Ramsey), and some facts satisfy it, then so do those among them that mention only x1 … xn and constants
of the policy. So n ids are enough, counted for each type apart as in many-sorted logic.

    F. P. Ramsey, On a problem of formal logic, 1930
    R. Piskac, L. de Moura, N. Bjørner, Deciding effectively propositional logic using DPLL and substitution sets, 2010

* The variables of a rule for what has to be true are an "x"; those of a rule for what has to be false are a "y".
  Under `not` it is the other way round.
* An "x" within the scope of a "y" is outside of the class: there is no bound.
* What has to be true must not be recursive: its formula would be infinite. What has to be false may be, if no "x" occurs
  in it: leaving facts out makes no more of it true. (For rules without `not`, this is the test of containment on a
  canonical database of A. K. Chandra and P. M. Merlin, Optimal implementation of conjunctive queries, 1977.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from checks.analysis.slices import Goal, Slice, SlicedRule
from policy.rules.components import Components
from policy.rules.program import Not, Var
from policy.values import INTEGER

Bound = Counter[str]  # ids by type


class Unbounded(Exception):
    """There is no bound, or none is known."""


def bound_of(holds: tuple[Slice, Goal] | None, fails: tuple[Slice, Goal] | None, compares_isolated: bool) -> Bound | None:
    """Return how many ids of each type are enough to make one goal true and another false; None if unknown."""
    slices = [side[0] for side in (holds, fails) if side]
    compares = any(each.compares_numbers for each in slices)
    if compares_isolated and compares:
        return None  # numbers that no fact mentions lie between those that facts mention: leaving facts out adds some
    found: Bound = Counter()
    for goal in [side[1] for side in (holds, fails) if side][:1]:
        for slot in goal.slots:
            if slot.values is None:
                found.update(slot.types)
    try:
        if holds:
            found += _Walk(holds[0]).truth(holds[1], False)
        if fails:
            found += _Walk(fails[0]).falsity(fails[1], False)
    except (Unbounded, RecursionError):
        return None
    if any(each.reads_time for each in slices):
        found[INTEGER] += 1
    return found


class _Walk:
    def __init__(self, part: Slice):
        self.part = part
        self.components = Components(part.called)
        self.known: dict[tuple[Goal, bool, bool], Bound] = {}

    def truth(self, goal: Goal, is_scoped: bool) -> Bound:
        """Return the bound for the goal to be true; `is_scoped` within the scope of a "for all"."""
        key = (goal, True, is_scoped)
        if key not in self.known:
            if self.components.number(goal) is not None:
                raise Unbounded
            self.known[key] = most(self._true(rule, is_scoped) for rule in self.part.rules[goal])
        return self.known[key]

    def _true(self, rule: SlicedRule, is_scoped: bool) -> Bound:
        found = variables(rule, rule.own)
        if found and is_scoped:
            raise Unbounded
        for literal, call in zip(rule.body, rule.calls):
            if call is None:
                continue
            if isinstance(literal, Not):
                found += self.falsity(call, is_scoped or bool(rule.inner.intersection(literal.atom.args)))
            else:
                found += self.truth(call, is_scoped)
        return found

    def falsity(self, goal: Goal, is_scoped: bool) -> Bound:
        is_recursive = self.components.number(goal) is not None
        key = (goal, False, is_scoped or is_recursive)
        if key not in self.known:
            self.known[key] = Counter()  # of a recursive goal, every part must be empty
            found: Bound = Counter()
            for rule in self.part.rules[goal]:
                found += self._false(rule, is_scoped or is_recursive)
            self.known[key] = found
        return self.known[key]

    def _false(self, rule: SlicedRule, is_scoped: bool) -> Bound:
        is_scoped = is_scoped or bool(rule.own)
        found: list[Bound] = []
        for literal, call in zip(rule.body, rule.calls):
            if call is None:
                continue
            if isinstance(literal, Not):
                inner = variables(rule, (name for name in rule.inner if name in literal.atom.args))
                if inner and is_scoped:
                    raise Unbounded
                found.append(inner + self.truth(call, is_scoped))
            else:
                found.append(self.falsity(call, is_scoped))
        return most(found)


def variables(rule: SlicedRule, names: Iterable[Var]) -> Bound:
    """Count the variables by type: one that may have several types counts for each."""
    found: Bound = Counter()
    for name in names:
        if rule.slots[name].values is None:
            found.update(rule.slots[name].types)
    return found


def most(bounds: Iterable[Bound]) -> Bound:
    found: Bound = Counter()
    for bound in bounds:
        found |= bound
    return found
