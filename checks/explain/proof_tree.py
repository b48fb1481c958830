"""Steps of a proof -> the tree to read. Each goal is explained once; what passes a limit says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from checks.explain.cases import Case, Condition, Env
from checks.explain.proof import Applied, Given, Goal, Step, Steps, Unexplained, values_of
from checks.explain.tree import Node, bindings, formula_of, shown_atom, shown_literal, written
from policy.rules.program import Atom, Not, Program
from policy.values import INTEGER, Value

MAX_DEPTH = 100  # levels of a proof; JSON of many more is refused by many readers
MAX_NODES = 1_000


@dataclass
class _Grower:
    program: Program
    steps: Steps
    now: int
    explained: set[Goal] = field(default_factory=set)
    count: int = 0

    def goal(self, goal: Goal, depth: int) -> Node:
        self.count += 1
        step = self.steps[goal]
        if goal in self.explained:
            return self._node("again", goal)
        if isinstance(step, Applied) and goal.predicate not in self.program.helpers:
            self.explained.add(goal)
        if isinstance(step, Given):
            return self._reason(goal, step, depth)
        if depth >= MAX_DEPTH:
            return self._node("unexplained", goal, note=f"more than {MAX_DEPTH} levels of reasons")
        if self.count > MAX_NODES:
            return self._node("unexplained", goal, note=f"more than {MAX_NODES} reasons")
        return self._reason(goal, step, depth)

    def _reason(self, goal: Goal, step: Step, depth: int) -> Node:
        match step:
            case Given(place):
                return self._node("fact", goal, source=place)
            case Unexplained(reason):
                return self._node("unexplained", goal, note=reason)
            case Applied(case, env):
                is_part = goal.predicate in self.program.helpers
                return self._node(
                    "part" if is_part else "rule",
                    goal,
                    source="" if is_part or case.conditions else "policy",
                    rule=written(self.program, case.rule),
                    bindings=() if is_part else bindings(case, env),
                    because=tuple([self._condition(case, each, env, depth + 1) for each in case.conditions]),
                )

    def _condition(self, case: Case, condition: Condition, env: Env, depth: int) -> Node:
        match condition.literal:
            case Atom(predicate) as atom:
                now = Value(INTEGER, str(self.now))
                return self.goal(Goal(predicate, values_of(atom, condition.call, env, now)), depth)
            case Not() as negation:
                return Node("absence", shown_literal(self.program, negation, env, self.now))
            case test:
                return Node("comparison", shown_literal(self.program, test, env, self.now))

    def _node(self, kind: str, goal: Goal, **members: Any) -> Node:
        if goal.predicate in self.program.helpers:
            return Node(kind, formula_of(self.program, goal.predicate, len(goal.args)), **members)
        return Node(kind, shown_atom(goal.predicate, goal.args), (goal.predicate, goal.args), **members)


def tree_of(program: Program, steps: Steps, goal: Goal, now: int) -> Node:
    return _Grower(program, steps, now).goal(goal, 0)
