"""The rules of a policy that a goal reaches, specialised to the constants and types that it asks for.

    allow(User, "delete", Repo)                    a goal
    has_permission(User, "delete", Repo)           what the default rule calls
    has_role(User, "owner", Organization)          what the policy's rule for "delete" calls

Everything else of the policy cannot change whether the goal holds. As in magic sets, constants are passed from heads to
calls; a role that is handed on from one resource to another becomes the roles that are asked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from policy.rules.flatten import PredicateKey
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


def terms_of(literal: Literal) -> tuple[Term, ...]:
    match literal:
        case Atom(_, args) | Not(Atom(_, args)):
            return args
        case Member(variable, values):
            return (variable, *values)
    return (literal.left, literal.right)


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
        head = rule.head
        if only:
            args = [only.get(term, term) if isinstance(term, Var) else term for term in head.args]
            head = Atom(head.predicate, tuple(args))
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


def replaced(literal: Literal, by: Mapping[Var, Value]) -> Literal:
    def term(old: Term) -> Term:
        return by.get(old, old) if isinstance(old, Var) else old

    match literal:
        case Atom(predicate, args):
            return Atom(predicate, tuple(map(term, args)))
        case Not(Atom(predicate, args)):
            return Not(Atom(predicate, tuple(map(term, args))))
        case Compare(operator, left, right):
            return Compare(operator, term(left), term(right))
    raise AssertionError(literal)
