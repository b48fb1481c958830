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
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from operator import or_
from typing import NamedTuple

from policy.rules.changes import ArgumentSet, AtomSet, are_within, atom_set, narrowed, term_set
from policy.rules.components import Components, reachable
from policy.rules.flatten import PredicateKey, atoms_of, is_made_here, key_of, terms_of, variables_in
from policy.rules.program import TYPED, Atom, Compare, Literal, Not, Now, Program, Rule, Term, Var, types_of
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
    """A rule as far as it matters to a goal."""

    head: Atom
    calls: tuple[SlicedCall, ...]
    compares: tuple[Compare, ...]
    slots: Mapping[Var, ArgumentSet] = field(hash=False)

    @property
    def terms(self) -> list[Term]:
        parts = self.slots, self.head.args, *map(terms_of, self.compares), *(call.terms for call in self.calls)
        return [term for part in parts for term in part]

    @property
    def own(self) -> set[Var]:
        """Return the variables that are not in the head."""
        return self.slots.keys() - set(self.head.args)

    @property
    def apart(self) -> list[AtomSet]:
        """Return the goals of calls that share no actor or resource with the head, or with calls that do."""
        types = partial(term_set, known=self.slots)
        ties = [{term for term in call.terms if not types(term).types <= {*PRIMITIVES}} for call in self.calls]
        starts = [*self.head.args, *(term for tie in ties for term in tie if isinstance(term, Value))]
        near = reachable(starts, lambda term: [each for tie in ties if term in tie for each in tie])
        return [call.goal for call, tie in zip(self.calls, ties) if tie.isdisjoint(near)]

    def unbound(self, heads: Set[tuple[PredicateKey, int]]) -> set[Var]:
        """Return the variables that may have any value, if calls bind none of these arguments of heads."""
        calls = [call for call in self.calls if not call.is_not]
        bound = {term for call in calls for place, term in enumerate(call.terms) if (call.goal.key, place) not in heads}
        return {name for name, slot in self.slots.items() if slot.values is None and name not in bound}

    def count(self, names: Iterable[Var]) -> Bound:
        return counted(self.slots[name] for name in names)


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

    @cached_property
    def isolated(self) -> Bound:
        """Return for each type how many values that no fact has one rule can tell apart.

        A variable can have such a value unless something binds it: a fact, a list, a call whose rules all bind it.
        Heads have such values only if a body asks about them: a goal is not asked about any.
        """
        heads: set[tuple[PredicateKey, int]] = set()  # arguments that their rules may not bind
        size = -1
        while size < len(heads):
            size = len(heads)
            unbound = [(rule, rule.unbound(heads)) for rule in self.all_rules]
            for rule, names in unbound:
                heads |= {(key_of(rule.head), place) for place, term in enumerate(rule.head.args) if term in names}
        found: Bound = Counter()
        for rule, names in unbound:
            asked = rule.count(names & rule.own)
            found |= Counter({name: number for name, number in rule.count(names).items() if name in asked})
        return found

    def called(self, goal: AtomSet) -> list[AtomSet]:
        return [call.goal for rule in self.rules[goal] for call in rule.calls]

    def _sliced(self, goal: AtomSet) -> list[AtomSet]:
        rules = (self._specialised(rule, goal) for rule in _plain(self.program).rules_by_predicate.get(goal.key, ()))
        self.rules[goal] = tuple(rule for rule in rules if rule is not None)
        return self.called(goal)

    def _specialised(self, rule: Rule, goal: AtomSet) -> SlicedRule | None:
        """Return the rule for the goal's atoms; None if it has none of them as its head."""
        slots = narrowed(rule, rule.head, goal)
        if slots is None or not all(slot.types for slot in slots.values()):
            return None
        calls = [self._call(each, slots) for each in rule.body if isinstance(each, Atom | Not)]
        compares = [each for each in rule.body if isinstance(each, Compare)]
        settled = [Compare(each.operator, *_settled(terms_of(each), slots)) for each in compares]
        left = {name: slot for name, slot in slots.items() if slot.only is None}
        return SlicedRule(Atom(goal.predicate, _settled(rule.head.args, slots)), tuple(calls), tuple(settled), left)

    def _call(self, literal: Atom | Not, slots: Mapping[Var, ArgumentSet]) -> SlicedCall:
        (atom,) = atoms_of([literal])
        terms = _settled(atom.args, slots)
        goal = atom_set(Atom(atom.predicate, terms), slots)
        known = self._known[goal.key]
        if goal not in known and len(known) >= MOST_GOALS:
            goal = all_atoms(_plain(self.program), goal.key)
        known.add(goal)
        return SlicedCall(goal, terms, isinstance(literal, Not))


def all_atoms(program: Program, key: PredicateKey) -> AtomSet:
    """Return all atoms of a predicate that facts or rules may make true."""
    patterns, (predicate, arity) = program.types_by_predicate.get(key, ()), key
    return AtomSet.of(predicate, [frozenset().union(*(each[place] for each in patterns)) for place in range(arity)])


def _settled(terms: Iterable[Term], slots: Mapping[Var, ArgumentSet]) -> tuple[Term, ...]:
    """Return the terms with the only value of a variable instead of it."""
    return tuple(slots[term].only or term if isinstance(term, Var) else term for term in terms)


def _plain(program: Program) -> Program:
    """Return the program with rules for facts, and helper rules for what a `not` says of variables of its own.

    free(d) if doc(d) and not locked(d, _by)    ->    free(d) if doc(d) and not some#7.1(d)
                                                      some#7.1(d) if locked(d, _by)
                                                      locked(x0, x1) if fact locked(x0, x1)
    """
    if _plain not in program.memo:
        rules = [part for number, rule in enumerate(program.rules) for part in _parted(rule, f"some#{number}")]
        for (name, arity), patterns in program.accepted.items():
            terms = tuple(Var(f"x{place}") for place in range(arity))
            rules += (Rule(Atom(name, terms), (Atom(f"{FACT}{name}", terms),), dict(zip(terms, p))) for p in patterns)
        accepted = {(f"{FACT}{name}", arity): patterns for (name, arity), patterns in program.accepted.items()}
        program.memo[_plain] = replace(program, rules=tuple(rules), accepted=accepted)
    return program.memo[_plain]


def _parted(rule: Rule, name: str) -> Iterator[Rule]:
    """Yield the rule and its helper rules. What no value can make true, since a variable has no type, is not denied."""
    types = partial(types_of, types=rule.types)
    body: list[Literal] = [
        each for each in rule.body if not (isinstance(each, Not) and frozenset() in map(types, each.atom.args))
    ]
    uses = Counter(term for literal in (rule.head, *body) for term in set(terms_of(literal)))
    for place, literal in enumerate(body):
        variables = dict.fromkeys(variables_in(literal))
        outer = tuple(term for term in variables if uses[term] > 1)
        if isinstance(literal, Not) and len(outer) < len(variables):
            head = Atom(f"{name}.{place}", outer)
            body[place] = Not(head)
            yield Rule(head, (literal.atom,), {each: rule.types[each] for each in variables})
    used = {term for literal in (rule.head, *body) for term in terms_of(literal)}
    yield replace(rule, body=tuple(body), types={each: types for each, types in rule.types.items() if each in used})


# ---- Proofs that no facts make one goal true and another false, whatever their number -------------------------------
# Containment: every rule for the first goal has a rule for the second that requires no more, as far as rules call. Then
# a derivation of the first is a derivation of the second, also in recursion (Y. Sagiv, Optimizing Datalog programs,
# 1987: uniform containment; here only rule by rule).
#
# A bound: how many ids of each type a counterexample needs at most. Unfolded, the rules for both goals are a formula of
# first order logic about the facts. If it has the form "there are x1 … xn such that for all y1 … ym: …" (the class of
# Bernays, Schönfinkel and Ramsey), and some facts satisfy it, then so do those among them that mention only x1 … xn and
# constants of the policy. So n ids are enough, counted for each type apart as in many-sorted logic (R. Piskac, L. de
# Moura, N. Bjørner, Deciding effectively propositional logic using DPLL and substitution sets, 2010).
#
# * The variables of a rule for what has to be true are an "x"; those of a rule for what has to be false are a "y".
#   Under `not` it is the other way round.
# * An "x" within the scope of a "y" is outside of the class: there is no bound.
# * What has to be true must not be recursive: its formula would be infinite. What has to be false may be, if no "x" is
#   in it: leaving facts out makes no more of it true. (For rules without `not`, this is the test of containment on a
#   canonical database of A. K. Chandra and P. M. Merlin, Optimal implementation of conjunctive queries, 1977.)

_MOST_MATCHES = 100  # looked at for one pair of rules
# That all atoms of a goal, as the slice with this number derives it, are atoms of another goal, as the other one does.
Contained = tuple[int, AtomSet, AtomSet]


def is_contained(*sides: Slice) -> bool:
    """Return whether one slice derives no atom of its goal that the other does not derive of its own, by their rules.

    Everything is assumed to be contained that would prove this; what cannot be is taken back, until nothing is.
    """
    proofs: dict[Contained, list[set[frozenset[Contained]]]] = {}  # for each rule of the goal, any of these is one

    def following(pair: Contained) -> set[Contained]:
        side, goal, wider = pair
        proofs[pair] = [set()]  # no proof of a rule, unless the goals' atoms are right
        if are_within(goal.args, wider.args):
            rules, others = sides[side].rules[goal], sides[1 - side].rules[wider]
            proofs[pair] = [{way for each in others for way in _ways(side, each, rule)} for rule in rules]
        return {each for ways in proofs[pair] for way in ways for each in way}

    start = 0, sides[0].goal, sides[1].goal
    assumed = set(reachable([start], following))
    while refuted := {pair for pair in assumed if not all(any(map(assumed.issuperset, ways)) for ways in proofs[pair])}:
        assumed -= refuted
    return start in assumed


def _ways(side: int, general: SlicedRule, rule: SlicedRule) -> set[frozenset[Contained]]:
    """Return what proves that the general rule requires no more, with some of the rule's terms as its variables."""
    start = _matched(general.head.args, rule.head.args, {})
    found = [] if start is None else [(start, frozenset[Contained]())]
    for wanted in general.calls:
        calls = sorted(rule.calls, key=lambda each: each.terms != wanted.terms)  # most rules are in both policies
        alike = [(each, pair) for each in calls if (pair := _contained(side, wanted, each)) is not None]
        found = [
            (more, needed | {pair}) for by, needed in found for each, pair in alike
            if (more := _matched(wanted.terms, each.terms, by)) is not None
        ][:_MOST_MATCHES]  # fmt: skip
    return {needed for by, needed in found if _fits(by, general, rule)}


def _contained(side: int, wanted: SlicedCall, each: SlicedCall) -> Contained | None:
    """Return what must be contained for one call to require no more than the other; None if they are not alike."""
    names = {wanted.goal.predicate, each.goal.predicate}  # which helper predicates they call does not matter
    if wanted.is_not != each.is_not or not (len(names) == 1 or all(map(is_made_here, names))):
        return None
    return (1 - side, wanted.goal, each.goal) if each.is_not else (side, each.goal, wanted.goal)


def _matched(general: Sequence[Term], terms: Sequence[Term], by: Mapping[Term, Term]) -> dict[Term, Term] | None:
    """Return what variables stand for if the general terms are these terms; None if they cannot be."""
    found = dict(by)
    for wanted, term in zip(general, terms):
        if (found.setdefault(wanted, term) if isinstance(wanted, Var) else wanted) != term:
            return None
    return found if len(general) == len(terms) else None


def _fits(by: Mapping[Term, Term], general: SlicedRule, rule: SlicedRule) -> bool:
    """Return whether the variables of the general rule may be these terms of the rule."""
    compares = (Compare(each.operator, *(by.get(term, term) for term in terms_of(each))) for each in general.compares)
    return (
        by.keys() >= general.slots.keys()
        and all(each in rule.compares for each in compares)
        and all(term_set(by[name], rule.slots).is_within(slot) for name, slot in general.slots.items())
    )


def bound_of(*slices: Slice) -> Bound | None:
    """Return how many ids of each type are enough to make one goal true and another false; None if unknown."""
    operators = {each.operator for part in slices for rule in part.all_rules for each in rule.compares}
    if any(part.isolated[INTEGER] for part in slices) and operators & TYPED.keys():
        return None  # numbers that no fact mentions lie between those that facts mention: leaving facts out adds some
    found = counted(slices[0].goal.args) + Counter({INTEGER: any(part.reads_time for part in slices)})
    try:
        for part, is_true in zip(slices, (True, False)):
            found += _ids_of(part, is_true)
    except (OverflowError, RecursionError):
        return None
    return found


def _ids_of(part: Slice, is_true: bool) -> Bound:
    """Count ids for the slice's goal to be true, or false; raise `OverflowError` if there is no bound."""
    components = Components(part.called)
    known: dict[tuple[AtomSet, bool, bool], Bound] = {}

    def of_goal(goal: AtomSet, is_true: bool, is_scoped: bool) -> Bound:
        """`is_scoped`: within the scope of a "for all"."""
        if components.number(goal) is not None:
            if is_true:
                raise OverflowError
            is_scoped = True
        key = goal, is_true, is_scoped
        if key in known:
            return known[key]
        found: Bound = Counter()
        known[key] = found  # of a recursive goal, every part must be empty
        for rule in part.rules[goal]:
            own = rule.count(rule.own)
            if own and is_true and is_scoped:
                raise OverflowError
            is_within = is_scoped or (not is_true and bool(rule.own))
            calls = [of_goal(call.goal, is_true != call.is_not, is_within) for call in rule.calls]
            # Some rule's body is true, with some values of its own variables; or all are false, with all values.
            needed: Bound = sum(calls, own) if is_true else reduce(or_, calls, Counter())
            found = found | needed if is_true else found + needed
        known[key] = found
        return found

    return of_goal(part.goal, is_true, False)
