"""Finds proofs: for each goal a fact, or a rule with bindings of its variables, one level at a time.

A goal that takes part in a recursion may follow from itself, which proves nothing. Such goals are searched breadth
first, by all rules at once, until facts or rules outside of the recursion prove the goal that the search began with. So
its proof is as short as it can be, and never leads back to itself. All other goals take the first rule that holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from checks.asking.snapshot import GIVEN_UP, Snapshot
from checks.engine.rules.clauses import Call
from checks.explain.bindings import bindings_for
from checks.explain.cases import ANY, Case, Goal, RuleBindings, value_in
from facts.wire import Fact
from policy.rules.program import Atom
from policy.values import Value

MAX_GOALS = 2_000  # that one explanation looks into
_MOST_AT_FIRST, _MOST_LATER = 20, (1_000, 50_000)  # bindings of one rule that are looked at


@dataclass(frozen=True, slots=True)
class ByFact:
    """The goal is a fact: `source` is "stored", or "context" where it comes with the question."""

    source: str


@dataclass(frozen=True, slots=True)
class ByRule:
    """The goal follows by a rule for these values of its variables."""

    case: Case
    bindings: RuleBindings = field(hash=False)


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The goal holds, but no proof of it was found, for this reason."""

    reason: str


ProofStep = ByFact | ByRule | Unexplained
Proof = dict[Goal, ProofStep]


def proof_of(session: Snapshot, goals: list[Goal]) -> Proof:
    """Return a step for each of the goals, which must hold, and for all premises below; no goal follows from itself."""
    search = _Search(session)
    waiting, seen = list(reversed(goals)), set()
    while waiting:
        goal = waiting.pop()
        if goal not in seen:
            seen.add(goal)
            waiting += reversed(search.premises(search.step(goal)))
    return search.proof


def values_of(atom: Atom, call: Call, bindings: RuleBindings, now: Value) -> tuple[Value, ...]:
    """Return the values of the atom's arguments; an unbound variable is any value of its type."""
    terms = zip(atom.args, call.types)
    return tuple([value_in(bindings, arg, now) or Value(type_name, ANY) for arg, type_name in terms])


@dataclass(frozen=True, slots=True)
class _Rules:
    """What may prove a goal that is no fact, and the recursion that the goal takes part in."""

    cases: tuple[Case, ...]
    component: int | None


@dataclass
class _Search:
    session: Snapshot
    proof: Proof = field(default_factory=dict)
    looked_into: int = 0
    rules: dict[Goal, _Rules] = field(default_factory=dict)

    def step(self, goal: Goal) -> ProofStep:
        """Return the goal's step, found now if it was not found with another goal of its recursion."""
        if goal not in self.proof:
            try:
                self._find(goal)
            except GIVEN_UP as reason:
                self.proof[goal] = Unexplained(self.session.gap_of(reason))
        return self.proof[goal]

    def _find(self, goal: Goal) -> None:
        if limit := self.limit_met():
            self.proof[goal] = limit
            return
        component = self.rules_about(goal).component
        if component is None:
            self.proof[goal] = self._first_step(goal)
        else:
            _RecursionSearch(self, component).find(goal)

    def premises(self, step: ProofStep) -> list[Goal]:
        """Return the atoms that a rule's step follows from, without its comparisons and negations."""
        if not isinstance(step, ByRule):
            return []
        now = self.session.moment
        return [
            Goal(condition.literal.predicate, values_of(condition.literal, condition.call, step.bindings, now))
            for condition in step.case.conditions
            if isinstance(condition.literal, Atom)
        ]

    def fact(self, goal: Goal) -> ByFact | None:
        """Return the step of a goal that is a fact; None if it is none. The goal must hold."""
        self.looked_into += 1
        fact = Fact(goal.predicate, goal.args)
        if not self.rules_about(goal).cases:  # it holds by no rule, so it is a fact, and the database is not asked
            return ByFact("context" if fact in self.session.brought else "stored")
        source = self.session.place_of(fact)
        return ByFact(source) if source else None

    def steps(self, goal: Goal, most: int) -> Iterator[list[ByRule]]:
        """Yield for each case the steps by which it proves the goal, at most `most`.

        The goal holds and is no fact. So if no other case holds, the last one does, and the database is not asked.
        """
        matched = ((case, case.matched(goal.args)) for case in self.rules_about(goal).cases)
        heads = [(case, bindings) for case, bindings in matched if bindings is not None]
        others_fail = True
        for index, (case, bindings) in enumerate(heads, 1):
            found = bindings_for(self.session, case, bindings, most, is_certain=others_fail and index == len(heads))
            others_fail = others_fail and found == []
            yield [ByRule(case, each) for each in found or ()]

    def limit_met(self) -> Unexplained | None:
        """Return why no more is looked into once a limit is met; None before."""
        if self.looked_into >= MAX_GOALS:
            return Unexplained(f"more than {MAX_GOALS:,} goals would have to be looked into")
        return Unexplained(self.session.lateness) if self.session.is_late else None

    def rules_about(self, goal: Goal) -> _Rules:
        known = self.rules.get(goal)
        if known is None:
            cases = self.session.cases
            pattern = cases.pattern(goal)
            known = self.rules[goal] = _Rules(cases.of(pattern), cases.component(pattern))
        return known

    def _first_step(self, goal: Goal) -> ProofStep:
        if step := self.fact(goal):
            return step
        found = (step for steps in self.steps(goal, 1) for step in steps)
        return next(found, Unexplained("the rule behind it leaves open what its variables are"))


@dataclass
class _PendingStep:
    """A step to a goal, and the goals of the same recursion that have to be proved before it counts."""

    goal: Goal
    step: ByRule
    unproved: set[Goal]


@dataclass
class _RecursionSearch:
    """The search within one recursion. A goal is proved only by goals that were proved before it."""

    search: _Search
    component: int
    waiting: dict[Goal, list[_PendingStep]] = field(default_factory=dict)  # by each goal that is waited for
    cut: dict[Goal, None] = field(default_factory=dict)  # goals to which a rule has more steps than were looked at

    def find(self, start: Goal) -> None:
        # By few bindings of each rule first; by more only if these give no proof.
        proof = self.search.proof
        queue = deque([start])
        for most in (_MOST_AT_FIRST, *_MOST_LATER):
            seen = set(queue) | set(self.waiting)
            while queue and start not in proof:
                if limit := self.search.limit_met():
                    proof[start] = limit
                    return
                for goal in self._look_into(queue.popleft(), most):
                    if goal not in seen:
                        seen.add(goal)
                        queue.append(goal)
            if start in proof:
                return
            queue = deque(self.cut)
            self.cut.clear()
        proof[start] = Unexplained("the rules behind it leave open what their variables are")

    def _look_into(self, goal: Goal, most: int) -> Iterator[Goal]:
        """Prove the goal, or note the steps that will prove it once their premises are proved; yield those premises."""
        if goal in self.search.proof:
            return
        if fact := self.search.fact(goal):
            self._prove(goal, fact)
            return
        for steps in self.search.steps(goal, most):
            if len(steps) >= most:
                self.cut[goal] = None
            for step in steps:
                self.search.session.check_time()
                unproved = {each for each in self.search.premises(step) if self._is_within(each)}
                waiting = _PendingStep(goal, step, unproved - self.search.proof.keys())
                if not waiting.unproved:
                    self._prove(goal, step)
                    return
                for premise in waiting.unproved:
                    self.waiting.setdefault(premise, []).append(waiting)
                yield from sorted(waiting.unproved, key=lambda each: each.args)

    def _is_within(self, goal: Goal) -> bool:
        return self.search.rules_about(goal).component == self.component

    def _prove(self, goal: Goal, step: ProofStep) -> None:
        """Give the goal its step; then do the same for each goal that has a step which waited for nothing else."""
        proved = [(goal, step)]
        while proved:
            goal, step = proved.pop()
            if goal in self.search.proof:
                continue
            self.search.proof[goal] = step
            for each in self.waiting.get(goal, ()):
                each.unproved.discard(goal)
                if not each.unproved:
                    proved.append((each.goal, each.step))
