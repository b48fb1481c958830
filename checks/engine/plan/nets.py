"""Literals -> a net: every way to their answers, with the states and answers that recursion needs.

Three forms, from the plainest on: exits only; goals that recursion reaches, each tested at its exits; answers
computed for goals, where a rule goes on from an answer (`"read" if "read" on "parent"` listed downwards).
"""

from __future__ import annotations

from dataclasses import replace

from checks.engine.plan.explored import Explored, explore
from checks.engine.plan.fixpoint import answering_net
from checks.engine.plan.partial import Frame, Partial
from checks.engine.plan.plan import Exit, Jump, Net, State, Step
from checks.engine.plan.states import FAR
from checks.engine.plan.unfold import Resolver
from checks.engine.rules.clauses import Operand, Pattern


def make_net(
    resolver: Resolver,
    start: Partial,
    fixed: frozenset[Operand],
    rounds: int | None = None,
    table: Pattern | None = None,
) -> Net:
    """The net of what is to be met; in `rounds` of that component, where it takes two answers of its own at once."""
    name = resolver.name()
    frame = Frame(fixed, rounds=rounds, table=table)
    explored = explore(resolver, start, frame)
    if rounds is not None or _goes_on_from_answers(explored):
        return answering_net(resolver, name, len(start.outs), explored, frame)
    kept = _kept_states(explored)
    if len(kept) < len(explored.arms):
        unfolded = explore(resolver, start, replace(frame, kept=kept))
        if not _goes_on_from_answers(unfolded):  # what is unfolded may want to be met in another order
            explored = unfolded
    return _goal_net(name, len(start.outs), explored, fixed)


def _goes_on_from_answers(explored: Explored) -> bool:
    return any(isinstance(end, Step) for end in explored.ends())


def _kept_states(explored: Explored) -> frozenset[State]:
    """States on a cycle, or entered from several places: what is left is unfolded where it is entered."""
    following = {s: {e.state for e in ends if isinstance(e, Jump)} for s, ends in explored.arms.items()}
    entered: dict[State, int] = {}
    for end in explored.ends():
        if isinstance(end, Jump):
            entered[end.state] = entered.get(end.state, 0) + 1
    shared = {state for state, times in entered.items() if times > 1 and len(explored.arms[state]) > 1}
    far = {state for state in explored.arms if state.active[-1][0] == FAR}
    return frozenset(shared | far | {state for state in following if state in _reachable(following, state)})


def _reachable(following: dict[State, set[State]], start: State) -> set[State]:
    found: set[State] = set()
    queue = list(following[start])
    while queue:
        state = queue.pop()
        if state not in found:
            found.add(state)
            queue += following[state]
    return found


# ---- goals -------------------------------------------------------------------------------------------------------


def _goal_net(name: str, width: int, explored: Explored, fixed: frozenset[Operand]) -> Net:
    exits = [end for end in explored.entry if isinstance(end, Exit)]
    moves: list[Jump] = []
    for state, ends in explored.arms.items():
        for end in ends:
            branch = explored.from_goal(state, end.branch)
            if isinstance(end, Exit):
                exits.append(replace(end, branch=branch))
            else:
                assert isinstance(end, Jump), "where a way goes on from answers, the net answers goals"
                moves.append(replace(end, branch=branch))
    seeds = tuple(end for end in explored.entry if isinstance(end, Jump))
    return Net(name, width, tuple(exits), seeds, tuple(moves), tuple(explored.arms), fixed=fixed)
