"""A draft -> the ends of its branches, and the ends of the branches of every state that they lead to.

can_read(:doc)   ->   entry:    exit <- …, jump to state 0 with (s1.a2) <- parent of :doc
                      state 0:  exit <- …, jump to state 0 with (s3.a2) <- parent of its goal
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from checks.engine.plan.draft import Draft, Enclosing
from checks.engine.plan.plan import Branch, Continuation, End, Exit, Form, Goals, Jump, NonlinearRecursion, Plan, Tagged
from checks.engine.plan.states import State
from checks.engine.plan.unfold import Unfolder
from checks.engine.rules.clauses import Col, GoalKey, Operand, Term, mapped


@dataclass
class Explored:
    """The ends of branches, as far as they are explored.

    If `nonlinear` is set, exploring stopped at a nonlinear recursion, and ends are missing.
    """

    entry: list[End] = field(default_factory=list)
    goals: dict[State, int] = field(default_factory=dict)  # the number of the source that the state's branches read
    arms: dict[State, list[End]] = field(default_factory=dict)
    goal_tags: dict[State, int] = field(default_factory=dict)  # the number of the state, which tags its rows
    nonlinear: NonlinearRecursion | None = None

    def ends(self) -> list[End]:
        return [*self.entry, *(end for ends in self.arms.values() for end in ends)]

    @property
    def goes_on_from_answers(self) -> bool:
        return any(isinstance(end, Continuation) for end in self.ends())

    def from_goal(self, state: State, branch: Branch) -> Branch:
        """Return the branch with the goals of the state as its first source."""
        number = self.goals[state]
        tagged = Tagged(number, self.goal_tags[state])
        return Branch((Goals(number), *branch.sources), (tagged, *branch.conditions))

    def add(self, unfolder: Unfolder, start: State, enclosing: Enclosing) -> list[State]:
        """Explore the state and all that its branches lead to; return the states that had not been explored before."""
        found, queue = [], [start]
        while queue and not self.nonlinear:
            state = queue.pop(0)
            if state not in self.arms:
                self.goals[state] = unfolder.numbers.source()
                self.goal_tags[state] = len(self.goal_tags)
                self.arms[state] = self.collected(unfolder.ends(_arms(unfolder, state, self.goals[state], enclosing)))
                found.append(state)
                queue += [end.state for end in self.arms[state] if isinstance(end, (Jump, Continuation))]
        return found

    def collected(self, ends: Iterable[End | NonlinearRecursion]) -> list[End]:
        """Return the ends, each once. Stop at a `NonlinearRecursion`, which is kept in `nonlinear`."""
        found: list[End] = []
        for end in ends:
            if isinstance(end, NonlinearRecursion):
                self.nonlinear = end
                break
            found.append(end)
        return found if len(found) < 2 else list(dict.fromkeys(found))


def explore(unfolder: Unfolder, starts: Iterable[Draft], enclosing: Enclosing) -> Explored:
    explored = Explored()
    explored.entry = explored.collected(unfolder.ends(starts))
    for end in explored.entry:
        if isinstance(end, (Jump, Continuation)):
            explored.add(unfolder, end.state, enclosing)
    return explored


def _arms(unfolder: Unfolder, state: State, goals: int, enclosing: Enclosing) -> list[Draft]:
    """Return a draft for each clause of the state's call, with the columns of its goals for its keys."""

    def placed(term: Term) -> Term:
        return Col(goals, f"c{term.index}", term.type) if isinstance(term, GoalKey) else term

    rest = tuple(mapped(literal, placed) for literal in state.rest)
    draft = Draft(rest, tuple(map(placed, state.outs)), inside=replace(enclosing, active=state.active))
    return unfolder.in_place(mapped(state.call, placed), draft)


def goals_plan(name: str, width: int, explored: Explored, fixed: frozenset[Operand], form: Form) -> Plan:
    """Return the plan, if no branch goes on from an answer: each ends, or jumps to a state."""
    exits = [end for end in explored.entry if isinstance(end, Exit)]
    seeds = tuple(end for end in explored.entry if isinstance(end, Jump))
    moves: list[Jump] = []
    for state, ends in explored.arms.items():
        for end in ends:
            branch = explored.from_goal(state, end.branch)
            if isinstance(end, Exit):
                exits.append(replace(end, branch=branch))
            else:
                assert isinstance(end, Jump), "where a branch goes on from answers, the plan answers goals"
                moves.append(replace(end, branch=branch))
    return Plan(name, width, tuple(exits), seeds, tuple(moves), tuple(explored.arms), fixed=fixed, form=form)
