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
from typing import NamedTuple

from policy.rules.components import Components
from policy.rules.flatten import PredicateKey, substituted, terms_of
from policy.rules.program import Atom, Compare, Literal, Member, Not, Now, Program, Rule, Term, Types, Var
from policy.values import INTEGER, Value

MOST_GOALS = 60  # of one predicate in a slice; beyond that a single goal stands for all of its atoms


class GoalSlot(NamedTuple):
    """The possible values of an argument: these, or all values of the types."""

    types: Types
    values: frozenset[Value] | None = None

    def meet(self, other: GoalSlot) -> GoalSlot | None:
        """Return what is possible by both; None if nothing is."""
        types = self.types & other.types
        if self.values is None and other.values is None:
            return GoalSlot(types) if types else None
        mine, theirs = (side.values for side in (self, other))
        kept = mine & theirs if mine is not None and theirs is not None else (mine or theirs or frozenset())
        return slot_of(value for value in kept if value.type in types)


def slot_of(values: Iterable[Value]) -> GoalSlot | None:
    found = frozenset(values)
    return GoalSlot(frozenset(value.type for value in found), found) if found else None


class GoalPattern(NamedTuple):
    """A set of atoms of one predicate."""

    predicate: str
    slots: tuple[GoalSlot, ...]

    @property
    def key(self) -> PredicateKey:
        return self.predicate, len(self.slots)

    def meet(self, patterns: Iterable[tuple[Types, ...]]) -> Iterator[tuple[GoalSlot, ...]]:
        """Yield the part of the goal that each pattern of types covers, if any."""
        for pattern in patterns:
            met = [slot.meet(GoalSlot(types)) for slot, types in zip(self.slots, pattern)]
            if None not in met:
                yield tuple(slot for slot in met if slot is not None)


def goal_of(predicate: str, args: Iterable[Value | Types]) -> GoalPattern:
    """Return the goal of an atom whose arguments are values, or any value of some types."""
    slots = tuple(
        GoalSlot(frozenset((arg.type,)), frozenset((arg,))) if isinstance(arg, Value) else GoalSlot(arg) for arg in args
    )
    return GoalPattern(predicate, slots)


@dataclass(frozen=True)
class SlicedRule:
    """A rule as far as it matters to a goal. `calls` has the goal of each literal of the body; None for comparisons.

    `inner` has the variables of a `not` that occur nowhere else: it is true if no value of them makes its atom true.
    """

    head: Atom
    body: tuple[Literal, ...]
    calls: tuple[GoalPattern | None, ...]
    slots: Mapping[Var, GoalSlot] = field(hash=False)
    inner: frozenset[Var]
    rule: Rule

    @property
    def own(self) -> list[Var]:
        """Return the variables that are neither in the head nor only in a `not`."""
        return [name for name in self.slots if name not in self.head.args and name not in self.inner]


@dataclass(frozen=True)
class Slice:
    """What the goals lead to: for each goal the rules with its atoms as heads."""

    program: Program
    goals: tuple[GoalPattern, ...]
    rules: Mapping[GoalPattern, tuple[SlicedRule, ...]]

    @property
    def all_rules(self) -> list[SlicedRule]:
        return list(dict.fromkeys(rule for rules in self.rules.values() for rule in rules))

    def accepts(self, goal: GoalPattern) -> bool:
        """Return whether some facts are atoms of the goal."""
        return any(True for _ in goal.meet(self.program.accepted.get(goal.key, ())))

    def called(self, goal: GoalPattern) -> list[GoalPattern]:
        return [call for rule in self.rules[goal] for call in rule.calls if call is not None]

    @property
    def values(self) -> set[Value]:
        """Return the constants of its rules and goals."""
        found = {value for goal in self.rules for slot in goal.slots for value in slot.values or ()}
        for rule in self.all_rules:
            terms = [term for literal in (rule.head, *rule.body) for term in terms_of(literal)]
            found.update(term for term in terms if isinstance(term, Value))
            found.update(value for slot in rule.slots.values() for value in slot.values or ())
        return found

    @property
    def types(self) -> Types:
        slots = [slot for goal in self.rules for slot in goal.slots]
        slots += [slot for rule in self.all_rules for slot in rule.slots.values()]
        return frozenset().union(*(slot.types for slot in slots))

    @property
    def reads_time(self) -> bool:
        return any(isinstance(term, Now) for rule in self.all_rules for lit in rule.body for term in terms_of(lit))

    @property
    def compares_numbers(self) -> bool:
        return any(isinstance(lit, Compare) and lit.operator in "<=>=" for rule in self.all_rules for lit in rule.body)


def sliced(program: Program, goals: Iterable[GoalPattern]) -> Slice:
    return _Slicing(program).slice(tuple(goals))


class _Slicing:
    def __init__(self, program: Program):
        self.program = program
        self.of_predicate: dict[PredicateKey, set[GoalPattern]] = defaultdict(set)
        self.widened: dict[PredicateKey, GoalPattern] = {}

    def slice(self, goals: tuple[GoalPattern, ...]) -> Slice:
        found: dict[GoalPattern, tuple[SlicedRule, ...]] = {}
        waiting = list(goals)
        while waiting:
            goal = waiting.pop()
            if goal in found:
                continue
            rules = self.program.rules_by_predicate.get(goal.key, ())
            found[goal] = tuple(each for rule in rules if (each := self._specialised(rule, goal)) is not None)
            waiting += [call for rule in found[goal] for call in rule.calls if call is not None]
        return Slice(self.program, goals, found)

    def _specialised(self, rule: Rule, goal: GoalPattern) -> SlicedRule | None:
        literals = [literal for literal in rule.body if not self._is_void(literal, rule)]
        named = {term for literal in (rule.head, *literals) for term in terms_of(literal)}
        slots: dict[Var, GoalSlot | None] = {
            name: GoalSlot(types) for name, types in rule.types.items() if name in named
        }
        for term, slot in zip(rule.head.args, goal.slots):
            if isinstance(term, Var):
                slots[term] = met(slots[term], slot)
            elif slot.meet(_constant(term)) is None:
                return None
        for literal in literals:
            if isinstance(literal, Member):
                slots[literal.variable] = met(slots[literal.variable], slot_of(literal.values))
        if any(slot is None or not slot.types for slot in slots.values()):
            return None
        known = {name: slot for name, slot in slots.items() if slot is not None}
        only = {name: next(iter(slot.values)) for name, slot in known.items() if slot.values and len(slot.values) == 1}
        body = tuple(replaced(lit, only) for lit in literals if not isinstance(lit, Member))
        head = Atom(rule.head.predicate, tuple(substituted(term, only) for term in rule.head.args))
        left = {name: slot for name, slot in known.items() if name not in only}
        uses = Counter(term for lit in (rule.head, *literals) for term in set(terms_of(lit)))
        inner = [term for lit in body if isinstance(lit, Not) for term in lit.atom.args if uses[term] == 1]
        calls = tuple(self._call(lit, left) for lit in body)
        return SlicedRule(head, body, calls, left, frozenset(var for var in inner if isinstance(var, Var)), rule)

    def _is_void(self, literal: Literal, rule: Rule) -> bool:
        """Return whether the literal is a `not` that is always true: a variable of its own can have no type."""
        return isinstance(literal, Not) and any(isinstance(t, Var) and not rule.types[t] for t in literal.atom.args)

    def _call(self, literal: Literal, slots: Mapping[Var, GoalSlot]) -> GoalPattern | None:
        atom = literal.atom if isinstance(literal, Not) else literal
        if not isinstance(atom, Atom):
            return None
        return self._known(GoalPattern(atom.predicate, tuple(slot_of_term(term, slots) for term in atom.args)))

    def _known(self, goal: GoalPattern) -> GoalPattern:
        """Return the goal, or one that covers it if there are too many of its predicate."""
        goals = self.of_predicate[goal.key]
        if goal.key in self.widened:
            return self.widened[goal.key]
        if goal not in goals and len(goals) >= MOST_GOALS:
            patterns = self.program.types_by_predicate.get(goal.key, ())
            types = [frozenset().union(*each) for each in zip(*patterns)] or [slot.types for slot in goal.slots]
            self.widened[goal.key] = goal_of(goal.predicate, types)
            return self.widened[goal.key]
        goals.add(goal)
        return goal


def met(one: GoalSlot | None, other: GoalSlot | None) -> GoalSlot | None:
    return one.meet(other) if one is not None and other is not None else None


def slot_of_term(term: Term, slots: Mapping[Var, GoalSlot]) -> GoalSlot:
    return slots[term] if isinstance(term, Var) else _constant(term)


def _constant(term: Term) -> GoalSlot:
    if isinstance(term, Value):
        return GoalSlot(frozenset((term.type,)), frozenset((term,)))
    return GoalSlot(frozenset((INTEGER,)))


def replaced(literal: Literal, by: Mapping[Var, Term]) -> Literal:
    match literal:
        case Atom(predicate, args):
            return Atom(predicate, tuple(substituted(arg, by) for arg in args))
        case Not(atom):
            return Not(Atom(atom.predicate, tuple(substituted(arg, by) for arg in atom.args)))
        case Compare(operator, left, right):
            return Compare(operator, substituted(left, by), substituted(right, by))
    raise AssertionError(literal)


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
