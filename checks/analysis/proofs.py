"""The rules that a goal reaches, specialised to the constants and types that it asks for; and what these prove.

    allow(User, "delete", Repo)                    a goal
    has_permission(User, "delete", Repo)           what the default rule calls
    has_role(User, "owner", Organization)          what the policy's rule for "delete" calls
    fact has_role(User, "owner", Organization)     what makes it true if no rule does: a stored fact

Everything else of the policy cannot change whether the goal holds. As in magic sets, constants are passed from heads to
calls; a role that is handed on from one resource to another becomes the roles that are asked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import NamedTuple

from policy.rules.changes import ArgumentSet, AtomSet, are_within, atom_set, narrowed, term_set
from policy.rules.components import Components, reachable
from policy.rules.flatten import PredicateKey, atoms_of, is_made_here, key_of, terms_of
from policy.rules.program import TYPED, Atom, Compare, Literal, Not, Now, Program, Rule, Term, Var
from policy.values import INTEGER, PRIMITIVES, Value

MOST_GOALS = 60  # of one predicate in a slice; beyond that a single goal stands for all of its atoms
FACT = "fact "  # before a predicate: its stored facts alone
Bound = Counter[str]  # ids by type


class SlicedCall(NamedTuple):
    """A call in a body: that an atom of the goal holds for the terms, or with `is_not`, that it does not."""

    goal: AtomSet
    terms: tuple[Term, ...]
    is_not: bool = False


@dataclass(frozen=True)
class SlicedRule:
    """A rule as far as it matters to a goal.

    `inner` has the variables of a `not` that occur nowhere else: it is true if no value of them makes its atom true.
    """

    head: Atom
    calls: tuple[SlicedCall, ...]
    compares: tuple[Compare, ...]
    slots: Mapping[Var, ArgumentSet] = field(hash=False)
    inner: frozenset[Var] = frozenset()

    @property
    def own(self) -> list[Var]:
        """Return the variables that are neither in the head nor only in a `not`."""
        return [name for name in self.slots if name not in self.head.args and name not in self.inner]

    @property
    def terms(self) -> list[Term]:
        parts = self.slots, self.head.args, *map(terms_of, self.compares), *(call.terms for call in self.calls)
        return [term for part in parts for term in part]


def counted(slots: Iterable[ArgumentSet]) -> Bound:
    """Count what may be any value of a type: what may have several types counts for each."""
    return Counter(name for slot in slots if slot.values is None for name in slot.types)


class Slice:
    """What some goals lead to: for each goal the rules with its atoms as heads, one of them for its accepted facts."""

    def __init__(self, program: Program, *goals: AtomSet):
        self.program = program
        self.goal = goals[0]
        self.rules: dict[AtomSet, tuple[SlicedRule, ...]] = {}
        self._known: dict[PredicateKey, set[AtomSet]] = defaultdict(set)
        reachable(goals, self._sliced)
        self.facts = [goal for goal in self.rules if goal.predicate.startswith(FACT)]
        self.all_rules = list(dict.fromkeys(rule for rules in self.rules.values() for rule in rules))
        self.reads_time = any(Now() in rule.terms for rule in self.all_rules)
        self.slots = {slot for goal in self.rules for slot in goal.args}
        self.slots |= {term_set(term, rule.slots) for rule in self.all_rules for term in rule.terms}

    @property
    def values(self) -> set[Value]:
        """Return the constants of its rules and goals."""
        return {value for slot in self.slots for value in slot.values or ()}

    def called(self, goal: AtomSet) -> list[AtomSet]:
        return [call.goal for rule in self.rules[goal] for call in rule.calls]

    def _sliced(self, goal: AtomSet) -> list[AtomSet]:
        rules = self.program.rules_by_predicate.get(goal.key, ())
        derived = (part for rule in rules if (part := self._specialised(rule, goal)) is not None)
        self.rules[goal] = (*derived, *self._accepted(goal))
        return self.called(goal)

    def _accepted(self, goal: AtomSet) -> Iterator[SlicedRule]:
        """Yield a rule for each part of the goal of which the policy accepts facts."""
        for pattern in self.program.accepted.get(goal.key, ()):
            met = tuple(slot.meet(ArgumentSet(types)) for slot, types in zip(goal.args, pattern))
            if all(slot.types for slot in met):
                terms = tuple(slot.only or Var(f"x{place}") for place, slot in enumerate(met))
                slots = {term: slot for term, slot in zip(terms, met) if isinstance(term, Var)}
                fact = SlicedCall(AtomSet(f"{FACT}{goal.predicate}", met), terms)
                yield SlicedRule(Atom(goal.predicate, terms), (fact,), (), slots)

    def _specialised(self, rule: Rule, goal: AtomSet) -> SlicedRule | None:
        """Return the rule for the goal's atoms; None if it has none of them as its head."""
        known = narrowed(rule, rule.head, goal)
        literals = [literal for literal in rule.body if not _is_void(literal, rule)]
        uses = Counter(term for literal in (rule.head, *literals) for term in set(terms_of(literal)))
        slots = {name: slot for name, slot in (known or {}).items() if name in uses}
        if known is None or not all(slot.types for slot in slots.values()):
            return None
        calls = tuple(self._call(each, slots) for each in literals if isinstance(each, Atom | Not))
        compares = [each for each in literals if isinstance(each, Compare)]
        settled = tuple(Compare(each.operator, *_settled(terms_of(each), slots)) for each in compares)
        denied = {term for each in calls if each.is_not for term in each.terms}
        left = {name: slot for name, slot in slots.items() if slot.only is None}
        inner = frozenset(name for name in left if name in denied and uses[name] == 1)
        return SlicedRule(Atom(goal.predicate, _settled(rule.head.args, slots)), calls, settled, left, inner)

    def _call(self, literal: Atom | Not, slots: Mapping[Var, ArgumentSet]) -> SlicedCall:
        (atom,) = atoms_of([literal])
        terms = _settled(atom.args, slots)
        goal = atom_set(Atom(atom.predicate, terms), slots)
        known = self._known[goal.key]
        if goal not in known and len(known) >= MOST_GOALS:
            goal = all_atoms(self.program, goal.key)
        known.add(goal)
        return SlicedCall(goal, terms, isinstance(literal, Not))


def all_atoms(program: Program, key: PredicateKey) -> AtomSet:
    """Return all atoms of a predicate that facts or rules may make true."""
    patterns, (predicate, arity) = program.types_by_predicate.get(key, ()), key
    return AtomSet.of(predicate, [frozenset().union(*(each[place] for each in patterns)) for place in range(arity)])


def _settled(terms: Iterable[Term], slots: Mapping[Var, ArgumentSet]) -> tuple[Term, ...]:
    """Return the terms with the only value of a variable instead of it."""
    return tuple(slots[term].only or term if isinstance(term, Var) else term for term in terms)


def _is_void(literal: Literal, rule: Rule) -> bool:
    """Return whether the literal is a `not` that is always true: a variable of its own can have no type."""
    return isinstance(literal, Not) and any(isinstance(t, Var) and not rule.types[t] for t in literal.atom.args)


def apart(part: Slice) -> set[AtomSet]:
    """Return the goals that share no actor or resource with the goals that lead to them, and all that these call."""
    return set(reachable([goal for rule in part.all_rules for goal in _apart(rule)], part.called))


def _apart(rule: SlicedRule) -> list[AtomSet]:
    def entities(terms: Iterable[Term]) -> set[Term]:
        return {term for term in terms if not term_set(term, rule.slots).types <= {*PRIMITIVES}}

    ties = [entities(call.terms) or {*call.terms} for call in rule.calls]
    near = {*entities(rule.head.args), *(term for tie in ties for term in tie if isinstance(term, Value))}
    for _ in ties:  # from call to call
        near.update(*(tie for tie in ties if not near.isdisjoint(tie)))
    return [call.goal for call, tie in zip(rule.calls, ties) if near.isdisjoint(tie)]


# ---- Values that no fact has -----------------------------------------------------------------------------------------


def isolation(slices: Iterable[Slice]) -> Bound:
    """Return for each type how many values that no fact has one rule can tell apart.

    A variable can have such a value unless something binds it: a fact, a list, a call whose rules all bind it. Heads
    have such values only if a body asks about them: a goal is not asked about any.
    """
    found: Bound = Counter()
    for part in slices:
        heads: Places = set()
        size = -1
        while size != len(heads):
            size = len(heads)
            heads |= {
                (key_of(rule.head), place)
                for rule in part.all_rules for place, term in enumerate(rule.head.args) if term in _unbound(rule, heads)
            }  # fmt: skip
        for rule in part.all_rules:
            unbound = _unbound(rule, heads)
            asked = counted(rule.slots[name] for name in unbound if name not in rule.head.args)
            most = counted(rule.slots[name] for name in unbound)
            found |= Counter({name: number for name, number in most.items() if name in asked})
    return found


Places = set[tuple[PredicateKey, int]]  # arguments of heads that their rules may not bind


def _unbound(rule: SlicedRule, heads: Places) -> list[Var]:
    bound: set[Term] = set()
    for call in rule.calls:
        known = [term for place, term in enumerate(call.terms) if (call.goal.key, place) not in heads]
        bound.update(term for term in known if not call.is_not or term in rule.inner)
    return [name for name, slot in rule.slots.items() if slot.values is None and name not in bound]


# ---- Proofs that no facts make one goal true and another false, whatever their number -------------------------------
# Containment: every rule for the first goal has a rule for the second that requires no more, as far as rules call. Then
# a derivation of the first is a derivation of the second, also in recursion.
#
#     Y. Sagiv, Optimizing Datalog programs, 1987 (uniform containment; here only rule by rule)
#
# A bound: how many ids of each type a counterexample needs at most. Unfolded, the rules for both goals are a formula of
# first order logic about the facts. If it has the form "there are x1 … xn such that for all y1 … ym: …" (the class of
# Bernays, Schönfinkel and Ramsey), and some facts satisfy it, then so do those among them that mention only x1 … xn and
# constants of the policy. So n ids are enough, counted for each type apart as in many-sorted logic.
#
#     F. P. Ramsey, On a problem of formal logic, 1930
#     R. Piskac, L. de Moura, N. Bjørner, Deciding effectively propositional logic using DPLL and substitution
#     sets, 2010
#
# * The variables of a rule for what has to be true are an "x"; those of a rule for what has to be false are a "y".
#   Under `not` it is the other way round.
# * An "x" within the scope of a "y" is outside of the class: there is no bound.
# * What has to be true must not be recursive: its formula would be infinite. What has to be false may be, if no "x" is
#   in it: leaving facts out makes no more of it true. (For rules without `not`, this is the test of containment on a
#   canonical database of A. K. Chandra and P. M. Merlin, Optimal implementation of conjunctive queries, 1977.)

_MOST_MATCHES = 3_000  # tried for one pair of rules


class Containment:
    """That all that one slice derives of its goal, the other derives of its own.

    Pairs of goals are assumed to be contained until no further one fails. A pair has the slice whose goal is contained
    in the other's, by its place, that goal, and the other's goal.
    """

    def __init__(self, *sides: Slice):
        self.sides = sides
        self.assumed: set[tuple[int, AtomSet, AtomSet]] = set()
        self.failed: set[tuple[int, AtomSet, AtomSet]] = set()

    def is_proved(self) -> bool:
        one, other = self.sides
        size = -1
        while size != len(self.failed):
            size = len(self.failed)
            self.assumed.clear()
            is_proved = self._holds(0, one.goal, other.goal)
        return is_proved

    def _holds(self, *pair: *tuple[int, AtomSet, AtomSet]) -> bool:
        if pair not in self.assumed and pair not in self.failed:
            self.assumed.add(pair)
            if not self._has_counterparts(*pair):
                self.failed.add(pair)
        return pair not in self.failed

    def _has_counterparts(self, side: int, goal: AtomSet, wider: AtomSet) -> bool:
        rules, others = self.sides[side].rules[goal], self.sides[1 - side].rules[wider]
        return are_within(goal.args, wider.args) and all(
            any(self._requires_less(side, general, rule) for general in others) for rule in rules
        )

    def _requires_less(self, side: int, general: SlicedRule, rule: SlicedRule) -> bool:
        """Return whether the general rule, with some of the rule's terms as its variables, requires no more."""
        steps = iter(range(_MOST_MATCHES))

        def matches(place: int, by: Mapping[Term, Term] | None) -> bool:
            """Return whether the general rule's calls from a place on are among those of the rule."""
            if by is None or next(steps, None) is None:
                return False
            if place == len(general.calls):
                return by.keys() >= general.slots.keys() and _fits(by, general, rule)
            wanted = general.calls[place]
            return any(
                (more := _matched(wanted.terms, each.terms, by)) is not None
                and self._asks_less(side, wanted, each)
                and matches(place + 1, more)
                for each in rule.calls
            )

        return matches(0, _matched(general.head.args, rule.head.args, {}))

    def _asks_less(self, side: int, wanted: SlicedCall, each: SlicedCall) -> bool:
        names = {wanted.goal.predicate, each.goal.predicate}  # which helper predicates they call does not matter
        if each.is_not != wanted.is_not or not (len(names) == 1 or all(map(is_made_here, names))):
            return False
        pair = (1 - side, wanted.goal, each.goal) if each.is_not else (side, each.goal, wanted.goal)
        return self._holds(*pair)


def _matched(general: Sequence[Term], terms: Sequence[Term], by: Mapping[Term, Term]) -> dict[Term, Term] | None:
    """Return what variables stand for if the general terms are these terms; None if they cannot be."""
    found = dict(by)
    for wanted, term in zip(general, terms):
        if (found.setdefault(wanted, term) if isinstance(wanted, Var) else wanted) != term:
            return None
    return found if len(general) == len(terms) else None


def _fits(by: Mapping[Term, Term], general: SlicedRule, rule: SlicedRule) -> bool:
    """Return whether the variables of the general rule may be these terms of the rule."""
    inner = {by[name] for name in general.inner}  # `not p(x, x)` requires less than `not p(x, y)`
    pairs = [(by.get(each.left, each.left), each.operator, by.get(each.right, each.right)) for each in general.compares]
    slots = [(name in general.inner, term_set(by[name], rule.slots), slot) for name, slot in general.slots.items()]
    return (
        len(inner) == len(general.inner)
        and inner == rule.inner.intersection(by.values())
        and all(Compare(operator, left, right) in rule.compares for left, operator, right in pairs)
        and all(mine == slot if is_inner else mine.is_within(slot) for is_inner, mine, slot in slots)
    )


# ---- bounds ----------------------------------------------------------------------------------------------------------


class Unbounded(Exception):
    """There is no bound, or none is known."""


def bound_of(holds: Slice, fails: Slice | None) -> Bound | None:
    """Return how many ids of each type are enough to make one goal true and another false; None if unknown."""
    slices = [holds, fails] if fails else [holds]
    operators = {each.operator for part in slices for rule in part.all_rules for each in rule.compares}
    if isolation(slices)[INTEGER] and operators & TYPED.keys():
        return None  # numbers that no fact mentions lie between those that facts mention: leaving facts out adds some
    found = counted(holds.goal.args)
    try:
        for part, is_true in zip(slices, (True, False)):
            found += _Walk(part).ids(part.goal, is_true, False)
    except (Unbounded, RecursionError):
        return None
    if any(part.reads_time for part in slices):
        found[INTEGER] += 1
    return found


class _Walk:
    """Counts ids for goals, rules and calls to be true, or false; `is_scoped`: within the scope of a "for all"."""

    def __init__(self, part: Slice):
        self.part = part
        self.components = Components(part.called)
        self.known: dict[tuple[AtomSet, bool, bool], Bound] = {}

    def ids(self, goal: AtomSet, is_true: bool, is_scoped: bool) -> Bound:
        is_recursive = self.components.number(goal) is not None
        if is_recursive and is_true:
            raise Unbounded
        key = (goal, is_true, is_scoped or is_recursive)
        if key not in self.known:
            self.known[key] = Counter()  # of a recursive goal, every part must be empty
            each = [self._of_rule(rule, *key[1:]) for rule in self.part.rules[goal]]
            self.known[key] = reduce(or_, each, Counter()) if is_true else sum(each, Counter())
        return self.known[key]

    def _of_rule(self, rule: SlicedRule, is_true: bool, is_scoped: bool) -> Bound:
        """Count for the body to be true with some values of the rule's own variables, or false with all."""
        is_within = is_scoped or (not is_true and bool(rule.own))
        found = [self._of_call(rule, call, is_true != call.is_not, is_within) for call in rule.calls]
        return sum(found, _chosen(rule, rule.own, is_scoped)) if is_true else reduce(or_, found, Counter())

    def _of_call(self, rule: SlicedRule, call: SlicedCall, is_true: bool, is_scoped: bool) -> Bound:
        """Count for the goal of a call to be true with some values of its inner variables, or false with all."""
        inner = rule.inner.intersection(call.terms)
        if is_true:
            return _chosen(rule, inner, is_scoped) + self.ids(call.goal, True, is_scoped)
        return self.ids(call.goal, False, is_scoped or bool(inner))


def _chosen(rule: SlicedRule, names: Iterable[Var], is_scoped: bool) -> Bound:
    found = counted(rule.slots[name] for name in names)
    if found and is_scoped:
        raise Unbounded
    return found
