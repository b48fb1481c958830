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
from functools import cached_property

from policy.rules.changes import ArgumentSet, AtomSet, are_within, atom_set, narrowed, term_set
from policy.rules.components import Components, reachable
from policy.rules.flatten import PredicateKey, atoms_of, is_made_here, key_of, substituted, terms_of
from policy.rules.program import Atom, Compare, Literal, Member, Not, Now, Program, Rule, Term, Types, Var
from policy.values import INTEGER, PRIMITIVES, Value

MOST_GOALS = 60  # of one predicate in a slice; beyond that a single goal stands for all of its atoms


@dataclass(frozen=True)
class SlicedRule:
    """A rule as far as it matters to a goal. `calls` has the goal of each literal of the body; None for comparisons.

    `inner` has the variables of a `not` that occur nowhere else: it is true if no value of them makes its atom true.
    """

    head: Atom
    body: tuple[Literal, ...]
    calls: tuple[AtomSet | None, ...]
    slots: Mapping[Var, ArgumentSet] = field(hash=False)
    inner: frozenset[Var]

    @property
    def own(self) -> list[Var]:
        """Return the variables that are neither in the head nor only in a `not`."""
        return [name for name in self.slots if name not in self.head.args and name not in self.inner]


@dataclass(frozen=True)
class Slice:
    """What the goals lead to: for each goal the rules with its atoms as heads."""

    program: Program
    goals: tuple[AtomSet, ...]
    rules: Mapping[AtomSet, tuple[SlicedRule, ...]]

    @property
    def goal(self) -> AtomSet:
        return self.goals[0]

    @cached_property
    def all_rules(self) -> list[SlicedRule]:
        return list(dict.fromkeys(rule for rules in self.rules.values() for rule in rules))

    @cached_property
    def terms(self) -> set[Term]:
        return {term for rule in self.all_rules for literal in (rule.head, *rule.body) for term in terms_of(literal)}

    @cached_property
    def slots(self) -> set[ArgumentSet]:
        return {slot for goal in self.rules for slot in goal.args} | {
            slot for rule in self.all_rules for slot in rule.slots.values()
        }

    @property
    def values(self) -> set[Value]:
        """Return the constants of its rules and goals."""
        return {value for slot in self.slots for value in slot.values or ()} | {
            term for term in self.terms if isinstance(term, Value)
        }

    @property
    def types(self) -> Types:
        return frozenset().union(*(slot.types for slot in self.slots))

    @property
    def reads_time(self) -> bool:
        return Now() in self.terms

    def accepted(self, goal: AtomSet) -> Iterator[tuple[ArgumentSet, ...]]:
        """Yield the parts of the goal of which the policy accepts facts."""
        for pattern in self.program.accepted.get(goal.key, ()):
            met = tuple(slot.meet(ArgumentSet(types)) for slot, types in zip(goal.args, pattern))
            if all(slot.types for slot in met):
                yield met

    def called(self, goal: AtomSet) -> list[AtomSet]:
        return [call for rule in self.rules[goal] for call in rule.calls if call is not None]


def sliced(program: Program, *goals: AtomSet) -> Slice:
    slicing = _Slicing(program)
    found: dict[AtomSet, tuple[SlicedRule, ...]] = {}
    waiting = list(goals)
    while waiting:
        goal = waiting.pop()
        if goal not in found:
            rules = program.rules_by_predicate.get(goal.key, ())
            found[goal] = tuple(each for rule in rules if (each := slicing.specialised(rule, goal)) is not None)
            waiting += [call for rule in found[goal] for call in rule.calls if call is not None]
    return Slice(program, goals, found)


class _Slicing:
    def __init__(self, program: Program):
        self.program = program
        self.of_predicate: dict[PredicateKey, set[AtomSet]] = defaultdict(set)
        self.widened: dict[PredicateKey, AtomSet] = {}

    def specialised(self, rule: Rule, goal: AtomSet) -> SlicedRule | None:
        """Return the rule for the goal's atoms; None if it has none of them as its head."""
        known = narrowed(rule, rule.head, goal)
        literals = [literal for literal in rule.body if not _is_void(literal, rule)]
        uses = Counter(term for literal in (rule.head, *literals) for term in set(terms_of(literal)))
        slots = {name: slot for name, slot in (known or {}).items() if name in uses}
        if known is None or not all(slot.types for slot in slots.values()):
            return None
        only = {name: slot.only for name, slot in slots.items() if slot.only is not None}
        left = {name: slot for name, slot in slots.items() if name not in only}
        body = tuple(_replaced(lit, only) for lit in literals if not isinstance(lit, Member))
        denied = {term for lit in body if isinstance(lit, Not) for term in lit.atom.args}
        inner = frozenset(name for name in left if name in denied and uses[name] == 1)
        calls = tuple(self._call(atom, left) if (atom := atom_of(lit)) else None for lit in body)
        return SlicedRule(_in_atom(rule.head, only), body, calls, left, inner)

    def _call(self, atom: Atom, slots: Mapping[Var, ArgumentSet]) -> AtomSet:
        """Return the goal of an atom, or one that covers it if there are too many of its predicate."""
        goal = atom_set(atom, slots)
        goals = self.of_predicate[goal.key]
        if goal.key not in self.widened and goal not in goals and len(goals) >= MOST_GOALS:
            patterns = self.program.types_by_predicate.get(goal.key, ())
            types = [frozenset().union(*each) for each in zip(*patterns)] or goal.types
            self.widened[goal.key] = AtomSet.of(goal.predicate, types)
        goals.add(goal)
        return self.widened.get(goal.key, goal)


def _is_void(literal: Literal, rule: Rule) -> bool:
    """Return whether the literal is a `not` that is always true: a variable of its own can have no type."""
    return isinstance(literal, Not) and any(isinstance(t, Var) and not rule.types[t] for t in literal.atom.args)


def _replaced(literal: Literal, by: Mapping[Var, Value]) -> Literal:
    match literal:
        case Atom():
            return _in_atom(literal, by)
        case Not(atom):
            return Not(_in_atom(atom, by))
        case Compare(operator, left, right):
            return Compare(operator, substituted(left, by), substituted(right, by))
    raise AssertionError(literal)


def _in_atom(atom: Atom, by: Mapping[Var, Value]) -> Atom:
    return Atom(atom.predicate, tuple(substituted(arg, by) for arg in atom.args))


def atom_of(literal: Literal) -> Atom | None:
    """Return the atom that a literal is, or denies."""
    return next(iter(atoms_of([literal])), None)


# ---- Goals about any values ------------------------------------------------------------------------------------------


def apart(part: Slice) -> set[AtomSet]:
    """Return the goals that share no actor or resource with the goals that lead to them, and all that these call."""
    return set(reachable([goal for rule in part.all_rules for goal in _apart(rule)], part.called))


def _apart(rule: SlicedRule) -> list[AtomSet]:
    left = {atom: call for lit, call in zip(rule.body, rule.calls) if call and (atom := atom_of(lit))}
    near = {*_entities(rule.head, rule), *(term for atom in left for term in atom.args if isinstance(term, Value))}
    size = -1
    while size != len(left):
        size = len(left)
        for atom in list(left):
            entities = _entities(atom, rule)
            if near.intersection(entities or atom.args) or not atom.args:
                near |= entities
                del left[atom]
    return list(left.values())


def _entities(atom: Atom, rule: SlicedRule) -> set[Term]:
    return {term for term in atom.args if not term_set(term, rule.slots).types.issubset(PRIMITIVES)}


# ---- Values that no fact has -----------------------------------------------------------------------------------------


def isolation(slices: Iterable[Slice]) -> Bound:
    """Return for each type how many values that no fact has one rule can tell apart.

    A variable can have such a value unless something binds it: a fact, a list, a call whose rules all bind it, or, in a
    head, all the calls that lead there. Goals are not asked about such values.
    """
    found: Bound = Counter()
    for part in slices:
        heads: Places = set()  # where such a value may be if it is asked about
        asked: Places = set()  # where it is
        for rule in _until_no_more(part.all_rules, heads):
            heads |= _places(rule.head, _open_variables(rule, heads))
        for rule in _until_no_more(part.all_rules, asked):
            is_open = _asked_variables(rule, heads, asked)
            asked |= {place for atom in atoms_of(rule.body) for place in _places(atom, is_open)}
        found = most([found, *(variables(rule, _asked_variables(rule, heads, asked)) for rule in part.all_rules)])
    return found


Places = set[tuple[PredicateKey, int]]


def _until_no_more(rules: Sequence[SlicedRule], found: Places) -> Iterator[SlicedRule]:
    """Yield the rules again and again, until nothing more is found by them."""
    size = -1
    while size != len(found):
        size = len(found)
        yield from rules


def _places(atom: Atom, names: Sequence[Term]) -> Places:
    return {(key_of(atom), place) for place, term in enumerate(atom.args) if term in names}


def _open_variables(rule: SlicedRule, places: Places) -> list[Var]:
    bound: set[Term] = set()
    for literal in rule.body:
        if atom := atom_of(literal):
            known = [term for place, term in enumerate(atom.args) if (key_of(atom), place) not in places]
            bound.update(term for term in known if literal == atom or term in rule.inner)
    return [name for name, slot in rule.slots.items() if slot.values is None and name not in bound]


def _asked_variables(rule: SlicedRule, places: Places, asked: Places) -> list[Var]:
    head = rule.head
    return [
        name
        for name in _open_variables(rule, places)
        if name not in head.args or not asked.isdisjoint(_places(head, [name]))
    ]


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
_MOST_MATCHES = 3_000  # tried for one pair of rules

# ---- containment ---------------------------------------------------------------------------------------------------


def is_contained(one: Slice, other: Slice) -> bool:
    """Return whether it is proved that all that one slice derives of its goal, the other derives of its own."""
    failed: set[_Pair] = set()
    while True:
        known = len(failed)
        holds = _Containment((one, other), failed, set()).assume((0, one.goal, other.goal))
        if not holds or len(failed) == known:
            return holds


# Which slice's goal is contained in the other's: its index, its goal and the other's goal.
_Pair = tuple[int, AtomSet, AtomSet]


@dataclass
class _Containment:
    """One pass: pairs that have not failed are assumed to hold, until a pass finds no further one that fails."""

    sides: tuple[Slice, Slice]
    failed: set[_Pair]
    seen: set[_Pair]

    def assume(self, pair: _Pair) -> bool:
        if pair not in self.seen | self.failed:
            self.seen.add(pair)
            if not self._holds(*pair):
                self.failed.add(pair)
        return pair not in self.failed

    def _holds(self, side: int, goal: AtomSet, wider: AtomSet) -> bool:
        one, other = self.sides[side], self.sides[1 - side]
        accepted = list(other.accepted(wider)) if goal.key == wider.key else []
        return (
            len(goal.args) == len(wider.args)
            and are_within(goal.args, wider.args)
            and all(any(are_within(slots, each) for each in accepted) for slots in one.accepted(goal))
            and all(any(self._covers(side, each, rule) for each in other.rules[wider]) for rule in one.rules[goal])
        )

    def _covers(self, side: int, general: SlicedRule, rule: SlicedRule) -> bool:
        """Return whether the general rule, with some of the rule's terms as its variables, requires no more."""
        steps = iter(range(_MOST_MATCHES))

        def covers(place: int, by: Mapping[Var, Term] | None) -> bool:
            """Return whether the general rule's literals from a place on are among those of the rule."""
            if by is None or next(steps, None) is None:
                return False
            if place == len(general.body):
                inner = {by[name] for name in general.inner}  # `not p(x, x)` requires less than `not p(x, y)`
                fits = (_fits(name, term, general, rule) for name, term in by.items())
                return len(inner) == len(general.inner) and all(fits)
            wanted, called = general.body[place], general.calls[place]
            return any(
                (more := _matched(terms_of(wanted), terms_of(literal), by)) is not None
                and _is_alike(wanted, literal)
                and self._calls(side, literal, call, called)
                and covers(place + 1, more)
                for literal, call in zip(rule.body, rule.calls)
            )

        return covers(0, _matched(general.head.args, rule.head.args, {}))

    def _calls(self, side: int, literal: Literal, call: AtomSet | None, wanted: AtomSet | None) -> bool:
        if call is None or wanted is None:
            return True
        return self.assume((1 - side, wanted, call) if isinstance(literal, Not) else (side, call, wanted))


def _is_alike(one: Literal, other: Literal) -> bool:
    """Return whether the literals differ only in their terms; which helper predicates they call does not matter."""
    if isinstance(one, Compare) or isinstance(other, Compare):
        return isinstance(one, Compare) and isinstance(other, Compare) and one.operator == other.operator
    names = {atom.predicate for atom in atoms_of([one, other])}
    return type(one) is type(other) and (len(names) == 1 or all(map(is_made_here, names)))


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
    literals = [literal for part in slices for rule in part.all_rules for literal in rule.body]
    if isolation(slices)[INTEGER] and any(isinstance(lit, Compare) and lit.operator in "<=>=" for lit in literals):
        return None  # numbers that no fact mentions lie between those that facts mention: leaving facts out adds some
    found = Counter(name for slot in holds.goal.args if slot.values is None for name in slot.types)
    try:
        found += _Walk(holds).ids(holds.goal, True, False)
        if fails:
            found += _Walk(fails).ids(fails.goal, False, False)
    except (Unbounded, RecursionError):
        return None
    if any(each.reads_time for each in slices):
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
            self.known[key] = most(each) if is_true else sum(each, Counter())
        return self.known[key]

    def _of_rule(self, rule: SlicedRule, is_true: bool, is_scoped: bool) -> Bound:
        """Return the bound for the rule's body to be true with some values of its own variables, or false with all."""
        found = [_chosen(rule, rule.own, is_scoped)] if is_true else []
        is_scoped = is_scoped or (not is_true and bool(rule.own))
        for literal, call in zip(rule.body, rule.calls):
            inner = rule.inner.intersection(terms_of(literal))
            if isinstance(literal, Not) and call and is_true:
                found.append(self.ids(call, False, is_scoped or bool(inner)))
            elif isinstance(literal, Not) and call:
                found.append(_chosen(rule, inner, is_scoped) + self.ids(call, True, is_scoped))
            elif call:
                found.append(self.ids(call, is_true, is_scoped))
        return sum(found, Counter()) if is_true else most(found)


def _chosen(rule: SlicedRule, names: Iterable[Var], is_scoped: bool) -> Bound:
    found = variables(rule, names)
    if found and is_scoped:
        raise Unbounded
    return found


def variables(rule: SlicedRule, names: Iterable[Var]) -> Bound:
    """Count the variables by type: one that may have several types counts for each."""
    slots = [rule.slots[name] for name in names]
    return Counter(name for slot in slots if slot.values is None for name in slot.types)


def most(bounds: Iterable[Bound]) -> Bound:
    found: Bound = Counter()
    for bound in bounds:
        found |= bound
    return found
