"""The ways from a net's entry, and from every state that they lead to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from checks.engine.plan.partial import Frame, Partial
from checks.engine.plan.plan import Branch, End, Goals, Jump, State, Step, Tagged
from checks.engine.plan.unfold import Resolver
from checks.engine.rules.clauses import Col, Key, Term, mapped


@dataclass
class Explored:
    entry: list[End]
    goals: dict[State, int] = field(default_factory=dict)  # the number of the source that the state's ways read
    arms: dict[State, list[End]] = field(default_factory=dict)
    places: dict[State, int] = field(default_factory=dict)

    def index(self, state: State) -> int:
        return self.places[state]

    def ends(self) -> list[End]:
        return [*self.entry, *(end for ends in self.arms.values() for end in ends)]

    def from_goal(self, state: State, branch: Branch) -> Branch:
        """The branch for each goal of the state."""
        number = self.goals[state]
        tagged = Tagged(number, (self.index(state),))
        return Branch((Goals(number), *branch.sources), (tagged, *branch.conditions))

    def add(self, resolver: Resolver, start: State, frame: Frame) -> list[State]:
        """The state with all that its ways lead to, as far as it is new; the new states."""
        found, queue = [], [start]
        while queue:
            state = queue.pop(0)
            if state not in self.arms:
                self.goals[state] = next(resolver.numbers)
                self.places[state] = len(self.places)
                self.arms[state] = list(dict.fromkeys(_arms(resolver, state, self.goals[state], frame)))
                found.append(state)
                queue += [end.state for end in self.arms[state] if isinstance(end, (Jump, Step))]
        return found


def explore(resolver: Resolver, start: Partial, frame: Frame) -> Explored:
    explored = Explored(list(dict.fromkeys(resolver.ways(start, frame))))
    for end in explored.entry:
        if isinstance(end, (Jump, Step)):
            explored.add(resolver, end.state, frame)
    return explored


def _arms(resolver: Resolver, state: State, goals: int, frame: Frame) -> Iterator[End]:
    def placed(term: Term) -> Term:
        return Col(goals, f"c{term.index}", term.type) if isinstance(term, Key) else term

    rest = tuple(mapped(literal, placed) for literal in state.rest)
    partial = Partial(rest, tuple(map(placed, state.outs)))
    return resolver.unfolded(partial, mapped(state.call, placed), replace(frame, active=state.active))
