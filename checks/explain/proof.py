"""Why something holds: for each goal a fact, or a rule with what its variables are, found one level at a time.

A goal that takes part in a recursion may hold by way of itself, which proves nothing. So such goals are searched
breadth first, all the ways at once, until facts or rules outside of the recursion carry the first one; what is found
is as short as it can be, and never leads back to itself. All other goals take the first rule that holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from checks.asking.snapshot import Snapshot
from checks.engine.rules.clauses import Call
from checks.explain.bindings import ANY, witnesses
from checks.explain.cases import Case, Env, value_in
from facts.wire import Fact
from policy.rules.program import Atom
from policy.values import Value

MAX_GOALS = 2_000  # that one explanation looks into
_AT_FIRST, _MORE = 20, (1_000, 50_000)  # witnesses of one rule that are looked at


@dataclass(frozen=True, slots=True)
class Goal:
    """Something that holds; an argument with the empty id may be any value of its type."""

    predicate: str
    args: tuple[Value, ...]

    def __hash__(self) -> int:
        args = self.args  # those that differ in between are few
        return hash((self.predicate, args[0].id, args[-1].id)) if args else hash(self.predicate)


@dataclass(frozen=True, slots=True)
class Given:
    """A fact says so: one that is stored, or comes with the question."""

    place: str


@dataclass(frozen=True, slots=True)
class Applied:
    """A rule says so, where its variables have these values."""

    case: Case
    env: Env = field(hash=False)


@dataclass(frozen=True, slots=True)
class Unexplained:
    """It holds, and why is not told."""

    reason: str


Step = Given | Applied | Unexplained
Steps = dict[Goal, Step]


def proof_of(scene: Snapshot, goals: list[Goal]) -> Steps:
    """A step for each of the goals, which hold, and for all that these steps rest upon; no goal rests upon itself."""
    search = _Search(scene)
    waiting = list(reversed(goals))
    while waiting:
        goal = waiting.pop()
        if goal not in search.steps:
            search.find(goal)
            waiting += search.unmet(goal)
    return search.steps


def premises(case: Case, env: Env, now: Value) -> list[Goal]:
    """What a rule's conditions rest upon: facts and what follows from others, not tests."""
    return [
        Goal(condition.literal.predicate, values_of(condition.literal, condition.call, env, now))
        for condition in case.conditions
        if isinstance(condition.literal, Atom)
    ]


def values_of(atom: Atom, call: Call, env: Env, now: Value) -> tuple[Value, ...]:
    """The atom's arguments; the empty id for variables without a value."""
    terms = zip(atom.args, call.types)
    return tuple([value_in(env, arg, now) or Value(kind, ANY) for arg, kind in terms])


@dataclass
class _Way:
    """A rule that carries a goal as soon as what it rests upon in the same recursion is carried."""

    goal: Goal
    step: Applied
    open: set[Goal]


@dataclass(frozen=True, slots=True)
class _Rules:
    """What may carry a goal, but facts."""

    cases: tuple[Case, ...]
    component: int | None  # the recursion that the goal takes part in


@dataclass
class _Search:
    scene: Snapshot
    steps: Steps = field(default_factory=dict)
    looked_into: int = 0
    rules: dict[Goal, _Rules] = field(default_factory=dict)

    def find(self, goal: Goal) -> None:
        component = self.rules_about(goal).component
        if component is None:
            self.steps[goal] = self._first_step(goal)
        else:
            _Recursion(self, component).find(goal)

    def unmet(self, goal: Goal) -> list[Goal]:
        """What the goal rests upon that has no step yet, through all that was found with it."""
        found: dict[Goal, None] = {}
        waiting, seen = [goal], {goal}
        while waiting:
            step = self.steps[waiting.pop()]
            for premise in premises(step.case, step.env, self.scene.moment) if isinstance(step, Applied) else ():
                if premise not in self.steps:
                    found[premise] = None
                elif premise not in seen:
                    seen.add(premise)
                    waiting.append(premise)
        return list(reversed(found))

    def _first_step(self, goal: Goal) -> Step:
        if over := self.over():
            return over
        if given := self.given(goal):
            return given
        for case, found in self.ways(goal, 1):
            if found:
                return Applied(case, found[0])
        return Unexplained("the rule behind it leaves open what its variables are")

    def given(self, goal: Goal) -> Given | None:
        self.looked_into += 1
        fact = Fact(goal.predicate, goal.args)
        if not self.rules_about(goal).cases:
            # It holds, and nothing but a fact says so: there is no need to ask.
            return Given("context" if fact in self.scene.brought else "stored")
        place = self.scene.place_of(fact)
        return Given(place) if place else None

    def ways(self, goal: Goal, most: int) -> Iterator[tuple[Case, list[Env]]]:
        """Each case that may carry the goal, with values for which it does.

        The goal holds: if it does by no other case, it does by the last one.
        """
        cases = self.rules_about(goal).cases
        heads = [(case, env) for case in cases if (env := case.bound(goal.args)) is not None]
        is_open = False
        for index, (case, env) in enumerate(heads, 1):
            is_certain = index == len(heads) and not is_open
            found = witnesses(self.scene, case, env, case.conditions, most, is_certain)
            is_open = is_open or found != []
            yield case, found or []

    def over(self) -> Unexplained | None:
        """Why no more is looked into, once a limit is met."""
        if self.looked_into >= MAX_GOALS:
            return Unexplained(f"more than {MAX_GOALS:,} goals would have to be looked into")
        return Unexplained(f"it takes longer than {self.scene.patience:g} seconds") if self.scene.is_late else None

    def rules_about(self, goal: Goal) -> _Rules:
        known = self.rules.get(goal)
        if known is None:
            book = self.scene.book
            kind = book.kind(goal.predicate, goal.args)
            known = self.rules[goal] = _Rules(book.cases(kind), book.component(kind))
        return known


@dataclass
class _Recursion:
    """The search within one recursion. A goal is carried only by goals that were carried before it."""

    search: _Search
    component: int
    waiting: dict[Goal, list[_Way]] = field(default_factory=dict)
    cut: dict[tuple[Goal, int], int] = field(default_factory=dict)  # cases with more witnesses than were looked at

    def find(self, start: Goal) -> None:
        steps = self.search.steps
        for most in (_AT_FIRST, *_MORE):
            queue = deque([start] if most == _AT_FIRST else list(dict.fromkeys(goal for goal, _ in self.cut)))
            self.cut.clear()
            seen = set(queue) | set(self.waiting)
            while queue and start not in steps:
                if over := self.search.over():
                    steps[start] = over
                    return
                for goal in self._look_into(queue.popleft(), most):
                    if goal not in seen:
                        seen.add(goal)
                        queue.append(goal)
            if start in steps:
                return
        steps[start] = Unexplained("the rules behind it leave open what their variables are")

    def _look_into(self, goal: Goal, most: int) -> Iterator[Goal]:
        """Carry the goal, or note the ways that would; the goals that these wait for."""
        steps = self.search.steps
        if goal in steps:
            return
        if given := self.search.given(goal):
            self._carry(goal, given)
            return
        for index, (case, found) in enumerate(self.search.ways(goal, most)):
            if len(found) >= most:
                self.cut[goal, index] = most
            for each in found:
                rests_on = premises(case, each, self.search.scene.moment)
                within = {p for p in rests_on if self.search.rules_about(p).component == self.component}
                way = _Way(goal, Applied(case, each), within - steps.keys())
                if not way.open:
                    self._carry(goal, way.step)
                    return
                for premise in way.open:
                    self.waiting.setdefault(premise, []).append(way)
                yield from sorted(way.open, key=lambda each: each.args)

    def _carry(self, goal: Goal, step: Step) -> None:
        """The goal has its step, and with it all that waited for nothing else."""
        carried = [(goal, step)]
        while carried:
            goal, step = carried.pop()
            if goal in self.search.steps:
                continue
            self.search.steps[goal] = step
            for way in self.waiting.get(goal, ()):
                way.open.discard(goal)
                if not way.open:
                    carried.append((way.goal, way.step))
