"""The rules that a goal reaches, specialised to the constants and types that it asks for; and what these prove.

    allow(User, "delete", Repo)                    a goal
    has_permission(User, "delete", Repo)           what the default rule calls
    has_role(User, "owner", Organization)          what the policy's rule for "delete" calls

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
from policy.rules.program import TYPED, Atom, Compare, Literal, Member, Not, Now, Program, Rule, Term, Var
from policy.values import INTEGER, PRIMITIVES, Value

MOST_GOALS = 60  # of one predicate in a slice; beyond that a single goal stands for all of its atoms
Bound = Counter[str]  # ids by type


class SlicedLiteral(NamedTuple):
    """A literal of a body: a comparison with its operator, or a call of a goal, with the operator `not` or none."""

    operator: str
    terms: tuple[Term, ...]
    goal: AtomSet | None = None  # the atoms that are asked about

    @property
    def is_not(self) -> bool:
        return self.operator == "not"


@dataclass(frozen=True)
class SlicedRule:
    """A rule as far as it matters to a goal.

    `inner` has the variables of a `not` that occur nowhere else: it is true if no value of them makes its atom true.
    """

    head: Atom
    body: tuple[SlicedLiteral, ...]
    slots: Mapping[Var, ArgumentSet] = field(hash=False)
    inner: frozenset[Var]

    @property
    def own(self) -> list[Var]:
        """Return the variables that are neither in the head nor only in a `not`."""
        return [name for name in self.slots if name not in self.head.args and name not in self.inner]

    @property
    def calls(self) -> list[tuple[AtomSet, SlicedLiteral]]:
        return [(each.goal, each) for each in self.body if each.goal is not None]

    @property
    def terms(self) -> list[Term]:
        return [*self.slots, *self.head.args, *(term for each in self.body for term in each.terms)]

    def entities(self, terms: Iterable[Term]) -> set[Term]:
        return {term for term in terms if not term_set(term, self.slots).types.issubset(PRIMITIVES)}

    def counted(self, names: Iterable[Var]) -> Bound:
        """Count variables by type: one that may have several types counts for each."""
        slots = [self.slots[name] for name in names]
        return Counter(name for slot in slots if slot.values is None for name in slot.types)


class Slice:
    """What some goals lead to: for each goal the rules with its atoms as heads."""

    def __init__(self, program: Program, *goals: AtomSet):
        self.program = program
        self.goal = goals[0]
        self.rules: dict[AtomSet, tuple[SlicedRule, ...]] = {}
        self._known: dict[PredicateKey, set[AtomSet]] = defaultdict(set)
        reachable(goals, self._sliced)
        self.all_rules = list(dict.fromkeys(rule for rules in self.rules.values() for rule in rules))
        self.reads_time = any(Now() in rule.terms for rule in self.all_rules)
        self.slots = {slot for goal in self.rules for slot in goal.args} | {
            term_set(term, rule.slots) for rule in self.all_rules for term in rule.terms
        }

    @property
    def values(self) -> set[Value]:
        """Return the constants of its rules and goals."""
        return {value for slot in self.slots for value in slot.values or ()}

    def accepted(self, goal: AtomSet) -> Iterator[tuple[ArgumentSet, ...]]:
        """Yield the parts of the goal of which the policy accepts facts."""
        for pattern in self.program.accepted.get(goal.key, ()):
            met = tuple(slot.meet(ArgumentSet(types)) for slot, types in zip(goal.args, pattern))
            if all(slot.types for slot in met):
                yield met

    def called(self, goal: AtomSet) -> list[AtomSet]:
        return [call for rule in self.rules[goal] for call, _ in rule.calls]

    def _sliced(self, goal: AtomSet) -> list[AtomSet]:
        rules = self.program.rules_by_predicate.get(goal.key, ())
        self.rules[goal] = tuple(part for rule in rules if (part := self._specialised(rule, goal)) is not None)
        return self.called(goal)

    def _specialised(self, rule: Rule, goal: AtomSet) -> SlicedRule | None:
        """Return the rule for the goal's atoms; None if it has none of them as its head."""
        known = narrowed(rule, rule.head, goal)
        literals = [literal for literal in rule.body if not _is_void(literal, rule)]
        uses = Counter(term for literal in (rule.head, *literals) for term in set(terms_of(literal)))
        slots = {name: slot for name, slot in (known or {}).items() if name in uses}
        if known is None or not all(slot.types for slot in slots.values()):
            return None
        body = tuple(self._literal(literal, slots) for literal in literals if not isinstance(literal, Member))
        denied = {term for each in body if each.is_not for term in each.terms}
        left = {name: slot for name, slot in slots.items() if slot.only is None}
        inner = frozenset(name for name in left if name in denied and uses[name] == 1)
        return SlicedRule(Atom(goal.predicate, _settled(rule.head.args, slots)), body, left, inner)

    def _literal(self, literal: Literal, slots: Mapping[Var, ArgumentSet]) -> SlicedLiteral:
        terms = _settled(terms_of(literal), slots)
        if isinstance(literal, Compare):
            return SlicedLiteral(literal.operator, terms)
        (atom,) = atoms_of([literal])
        goal = atom_set(Atom(atom.predicate, terms), slots)
        known = self._known[goal.key]
        if goal not in known and len(known) >= MOST_GOALS:
            goal = all_atoms(self.program, goal.key)
        known.add(goal)
        return SlicedLiteral("not" if isinstance(literal, Not) else "", terms, goal)


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
    ties = {each: rule.entities(each.terms) or set(each.terms) for _, each in rule.calls}
    constants = [term for tie in ties.values() for term in tie if isinstance(term, Value)]

    def beside(term: Term) -> set[Term]:
        return {entity for tie in ties.values() if term in tie for entity in rule.entities(tie)}

    near = reachable([*rule.entities(rule.head.args), *constants], beside)
    return [goal for goal, each in rule.calls if each.terms and ties[each].isdisjoint(near)]


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
            for rule in part.all_rules:
                unbound = _unbound(rule, heads)
                heads |= {(key_of(rule.head), n) for n, term in enumerate(rule.head.args) if term in unbound}
        most: Bound = Counter()
        asked: Bound = Counter()
        for rule in part.all_rules:
            unbound = _unbound(rule, heads)
            most |= rule.counted(unbound)
            asked += rule.counted(name for name in unbound if name not in rule.head.args)
        found |= Counter({name: number for name, number in most.items() if name in asked})
    return found


Places = set[tuple[PredicateKey, int]]  # arguments of heads that their rules may not bind


def _unbound(rule: SlicedRule, places: Places) -> list[Var]:
    bound: set[Term] = set()
    for goal, call in rule.calls:
        known = [term for place, term in enumerate(call.terms) if (goal.key, place) not in places]
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


def is_contained(one: Slice, other: Slice) -> bool:
    """Return whether it is proved that all that one slice derives of its goal, the other derives of its own."""
    search = _Containment((one, other))
    while True:
        known = len(search.failed)
        search.assumed.clear()
        holds = search.holds(0, one.goal, other.goal)
        if not holds or len(search.failed) == known:
            return holds


@dataclass
class _Containment:
    """Pairs that have not failed are assumed to hold, again and again until no further one fails.

    A pair has the slice whose goal is contained in the other's, by its place, that goal, and the other's goal.
    """

    sides: tuple[Slice, Slice]
    failed: set[tuple[int, AtomSet, AtomSet]] = field(default_factory=set)
    assumed: set[tuple[int, AtomSet, AtomSet]] = field(default_factory=set)

    def holds(self, side: int, goal: AtomSet, wider: AtomSet) -> bool:
        pair = side, goal, wider
        if pair not in self.assumed | self.failed:
            self.assumed.add(pair)
            if not self._has_counterparts(side, goal, wider):
                self.failed.add(pair)
        return pair not in self.failed

    def _has_counterparts(self, side: int, goal: AtomSet, wider: AtomSet) -> bool:
        one, other = self.sides[side], self.sides[1 - side]
        accepted = list(other.accepted(wider)) if goal.key == wider.key else []
        return (
            len(goal.args) == len(wider.args)
            and are_within(goal.args, wider.args)
            and all(any(are_within(slots, each) for each in accepted) for slots in one.accepted(goal))
            and all(
                any(self._requires_less(side, each, rule) for each in other.rules[wider]) for rule in one.rules[goal]
            )
        )

    def _requires_less(self, side: int, general: SlicedRule, rule: SlicedRule) -> bool:
        """Return whether the general rule, with some of the rule's terms as its variables, requires no more."""
        steps = iter(range(_MOST_MATCHES))

        def matches(place: int, by: Mapping[Var, Term] | None) -> bool:
            """Return whether the general rule's literals from a place on are among those of the rule."""
            if by is None or next(steps, None) is None:
                return False
            if place == len(general.body):
                inner = {by[name] for name in general.inner}  # `not p(x, x)` requires less than `not p(x, y)`
                return len(inner) == len(general.inner) and all(_fits(*pair, general, rule) for pair in by.items())
            wanted = general.body[place]
            return any(
                wanted.operator == each.operator
                and (more := _matched(wanted.terms, each.terms, by)) is not None
                and self._asks_less(side, wanted.goal, each)
                and matches(place + 1, more)
                for each in rule.body
            )

        return matches(0, _matched(general.head.args, rule.head.args, {}))

    def _asks_less(self, side: int, wanted: AtomSet | None, each: SlicedLiteral) -> bool:
        if wanted is None or each.goal is None:
            return wanted == each.goal
        names = {wanted.predicate, each.goal.predicate}  # which helper predicates they call does not matter
        pair = (wanted, each.goal) if each.is_not else (each.goal, wanted)
        return (len(names) == 1 or all(map(is_made_here, names))) and self.holds(side ^ each.is_not, *pair)


def _matched(general: Sequence[Term], terms: Sequence[Term], by: Mapping[Var, Term]) -> dict[Var, Term] | None:
    found = dict(by)
    for wanted, term in zip(general, terms):
        if (found.setdefault(wanted, term) if isinstance(wanted, Var) else wanted) != term:
            return None
    return found if len(general) == len(terms) else None


def _fits(name: Var, term: Term, general: SlicedRule, rule: SlicedRule) -> bool:
    """Return whether a variable of the general rule may stand for the rule's term."""
    slot = term_set(term, rule.slots)
    if name in general.inner or term in rule.inner:
        return name in general.inner and term in rule.inner and general.slots[name] == slot
    return slot.is_within(general.slots[name])


# ---- bounds ----------------------------------------------------------------------------------------------------------


class Unbounded(Exception):
    """There is no bound, or none is known."""


def bound_of(holds: Slice, fails: Slice | None) -> Bound | None:
    """Return how many ids of each type are enough to make one goal true and another false; None if unknown."""
    slices = [holds, fails] if fails else [holds]
    operators = {each.operator for part in slices for rule in part.all_rules for each in rule.body}
    if isolation(slices)[INTEGER] and operators & TYPED.keys():
        return None  # numbers that no fact mentions lie between those that facts mention: leaving facts out adds some
    found = Counter(name for slot in holds.goal.args if slot.values is None for name in slot.types)
    try:
        for part, is_true in zip(slices, (True, False)):
            found += _Walk(part).ids(part.goal, is_true, False)
    except (Unbounded, RecursionError):
        return None
    if any(part.reads_time for part in slices):
        found[INTEGER] += 1
    return found


class _Walk:
    def __init__(self, part: Slice):
        self.part = part
        self.components = Components(part.called)
        self.known: dict[tuple[AtomSet, bool, bool], Bound] = {}

    def ids(self, goal: AtomSet, is_true: bool, is_scoped: bool) -> Bound:
        """Return the bound for the goal to be true, or false; `is_scoped` within the scope of a "for all"."""
        is_recursive = self.components.number(goal) is not None
        if is_recursive and is_true:
            raise Unbounded
        key = (goal, is_true, is_scoped or is_recursive)
        if key not in self.known:
            self.known[key] = Counter()  # of a recursive goal, every part must be empty
            each = [self._of_rule(rule, *key[1:]) for rule in self.part.rules[goal]]
            self.known[key] = _most(each) if is_true else sum(each, Counter())
        return self.known[key]

    def _of_rule(self, rule: SlicedRule, is_true: bool, is_scoped: bool) -> Bound:
        """Return the bound for the rule's body to be true with some values of its own variables, or false with all."""
        found = [_chosen(rule, rule.own, is_scoped)] if is_true else []
        is_scoped = is_scoped or (not is_true and bool(rule.own))
        for goal, each in rule.calls:
            inner = rule.inner.intersection(each.terms)
            if each.is_not and not is_true:
                found.append(_chosen(rule, inner, is_scoped) + self.ids(goal, True, is_scoped))
            else:
                found.append(self.ids(goal, is_true and not each.is_not, is_scoped or bool(inner)))
        return sum(found, Counter()) if is_true else _most(found)


def _chosen(rule: SlicedRule, names: Iterable[Var], is_scoped: bool) -> Bound:
    found = rule.counted(names)
    if found and is_scoped:
        raise Unbounded
    return found


def _most(bounds: Iterable[Bound]) -> Bound:
    return reduce(or_, bounds, Counter())
