"""Proofs that no facts make one goal true and another false, whatever their number.

Containment: every rule for the first goal has a rule for the second that requires no more, as far as rules call. Then a
derivation of the first is a derivation of the second, also in recursion.

    Y. Sagiv, Optimizing Datalog programs, 1987 (uniform containment; here only rule by rule)

A bound: how many ids of each type a counterexample needs at most. Unfolded, the rules for both goals are a formula of
first order logic about the facts. If it has the form "there are x1 … xn such that for all y1 … ym: …" (the class of
Bernays, Schönfinkel and Ramsey), and some facts satisfy it, then so do those among them that mention only x1 … xn and
constants of the policy. So n ids are enough, counted for each type apart as in many-sorted logic.

    F. P. Ramsey, On a problem of formal logic, 1930
    R. Piskac, L. de Moura, N. Bjørner, Deciding effectively propositional logic using DPLL and substitution sets, 2010

* The variables of a rule for what has to be true are an "x"; those of a rule for what has to be false are a "y".
  Under `not` it is the other way round.
* An "x" within the scope of a "y" is outside of the class: there is no bound.
* What has to be true must not be recursive: its formula would be infinite. What has to be false may be, if no "x" is
  in it: leaving facts out makes no more of it true. (For rules without `not`, this is the test of containment on a
  canonical database of A. K. Chandra and P. M. Merlin, Optimal implementation of conjunctive queries, 1977.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from checks.analysis.slices import GoalPattern, GoalSlot, Slice, SlicedRule, slot_of_term, terms_of
from policy.rules.components import Components
from policy.rules.program import Atom, Compare, Literal, Not, Term, Var
from policy.values import INTEGER

Bound = Counter[str]  # ids by type
_MOST_MATCHES = 3_000  # tried for one pair of goals

# ---- containment ---------------------------------------------------------------------------------------------------


def is_contained(one: Slice, goal: GoalPattern, other: Slice, wider: GoalPattern) -> bool:
    """Return whether it is proved that all that one slice derives of its goal, the other derives of the wider goal."""
    failed: set[_Pair] = set()
    while True:
        attempt = _Containment(one, other, failed)
        holds = attempt.assume(goal, wider)
        if not holds or len(failed) == attempt.known_failures:
            return holds


# Goals of both slices, and whether the second is contained in the first instead.
_Pair = tuple[GoalPattern, GoalPattern, bool]


@dataclass
class _Containment:
    """One pass: pairs that have not failed are assumed to hold, until a pass finds no further one that fails."""

    one: Slice
    other: Slice
    failed: set[_Pair]
    is_reversed: bool = False
    seen: set[_Pair] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.known_failures = len(self.failed)

    def assume(self, goal: GoalPattern, wider: GoalPattern) -> bool:
        pair = (goal, wider, self.is_reversed)
        if pair in self.failed:
            return False
        if pair not in self.seen:
            self.seen.add(pair)
            if not self._holds(goal, wider):
                self.failed.add(pair)
                return False
        return True

    def _holds(self, goal: GoalPattern, wider: GoalPattern) -> bool:
        if len(goal.slots) != len(wider.slots) or not all(map(_is_within, goal.slots, wider.slots)):
            return False
        accepted = list(wider.meet(self.other.program.accepted.get(wider.key, ())))
        for slots in goal.meet(self.one.program.accepted.get(goal.key, ())):
            if goal.key != wider.key or not any(all(map(_is_within, slots, each)) for each in accepted):
                return False
        return all(any(self._covers(each, rule) for each in self.other.rules[wider]) for rule in self.one.rules[goal])

    def _covers(self, general: SlicedRule, rule: SlicedRule) -> bool:
        """Return whether the general rule, with some of the rule's terms as its variables, requires no more."""
        found = _matched(general.head.args, rule.head.args, {})
        steps = iter(range(_MOST_MATCHES))
        return found is not None and self._match(0, general, rule, found, steps)

    def _match(
        self, place: int, general: SlicedRule, rule: SlicedRule, by: Mapping[Var, Term], steps: Iterator[int]
    ) -> bool:
        if next(steps, None) is None:
            return False
        if place == len(general.body):
            return all(
                _is_within(_slot(term, rule), general.slots[name])
                for name, term in by.items()
                if name not in general.inner
            )
        wanted, called = general.body[place], general.calls[place]
        for literal, call in zip(rule.body, rule.calls):
            more = self._literal(wanted, literal, by, general, rule)
            if more is None or not self._calls(called, call, isinstance(literal, Not)):
                continue
            if self._match(place + 1, general, rule, more, steps):
                return True
        return False

    def _calls(self, wanted: GoalPattern | None, call: GoalPattern | None, is_negated: bool) -> bool:
        if wanted is None or call is None:
            return True
        if is_negated:
            return _Containment(self.other, self.one, self.failed, not self.is_reversed, self.seen).assume(wanted, call)
        return self.assume(call, wanted)

    def _literal(
        self, wanted: Literal, given: Literal, by: Mapping[Var, Term], general: SlicedRule, rule: SlicedRule
    ) -> dict[Var, Term] | None:
        if type(wanted) is not type(given):
            return None
        if isinstance(wanted, Compare) and isinstance(given, Compare) and wanted.operator != given.operator:
            return None
        theirs, mine = _predicate(wanted), _predicate(given)
        if theirs != mine and not (theirs in self.other.program.helpers and mine in self.one.program.helpers):
            return None
        found = _matched(terms_of(wanted), terms_of(given), by)
        for name, term in (found or {}).items():
            if (name in general.inner) != (term in rule.inner):
                return None
            if name in general.inner and general.slots[name] != _slot(term, rule):
                return None
        return found


def _predicate(literal: Literal) -> str:
    atom = literal.atom if isinstance(literal, Not) else literal
    return atom.predicate if isinstance(atom, Atom) else ""


def _matched(general: Sequence[Term], terms: Sequence[Term], by: Mapping[Var, Term]) -> dict[Var, Term] | None:
    if len(general) != len(terms):
        return None
    found = dict(by)
    for wanted, term in zip(general, terms):
        if isinstance(wanted, Var):
            if found.setdefault(wanted, term) != term:
                return None
        elif wanted != term:
            return None
    return found


def _slot(term: Term, rule: SlicedRule) -> GoalSlot:
    return slot_of_term(term, rule.slots)


def _is_within(one: GoalSlot, other: GoalSlot) -> bool:
    if other.values is None:
        return one.types <= other.types
    return one.values is not None and one.values <= other.values


# ---- bounds ----------------------------------------------------------------------------------------------------------


_Side = tuple[Slice, GoalPattern]


class Unbounded(Exception):
    """There is no bound, or none is known."""


def bound_of(
    holds: tuple[Slice, GoalPattern] | None, fails: tuple[Slice, GoalPattern] | None, compares_isolated: bool
) -> Bound | None:
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
        self.known: dict[tuple[GoalPattern, bool, bool], Bound] = {}

    def truth(self, goal: GoalPattern, is_scoped: bool) -> Bound:
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

    def falsity(self, goal: GoalPattern, is_scoped: bool) -> Bound:
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
