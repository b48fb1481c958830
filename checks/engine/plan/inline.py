"""Which states of a plan stay states, and which are written in place where they are entered.

    entry -> state 0 -> state 1 -> state 1        ->        entry, by what state 0 does -> state 1 -> state 1

A state costs a table of goals; in place, its branches join with what led to them. So a state stays where it must, on a
cycle, and where writing it in place would write it more than once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from checks.engine.plan.explore import Explored
from checks.engine.plan.plan import Jump
from checks.engine.plan.states import FAR, State
from policy.rules.components import reachable


def inlined(explored: Explored, again: Callable[[frozenset[State]], Explored]) -> Explored:
    """The branches explored `again`, with the states in place that need not stay.

    They are not put together from what was explored before: where a state is entered, more is known than in the state,
    so that its literals may be met in another order and otherwise. That takes a quarter of the time of planning (of the
    questions whose plans are golden texts).
    """
    states = in_place(explored)
    if not states:
        return explored
    found = again(states)
    return explored if found.goes_on_from_answers or found.twice is not None else found


def in_place(explored: Explored) -> frozenset[State]:
    """The states that need not stay: on no cycle, not entered from several places, nor far from the entry."""
    following = {s: {e.state for e in ends if isinstance(e, Jump)} for s, ends in explored.arms.items()}
    entered = Counter(end.state for end in explored.ends() if isinstance(end, Jump))
    shared = {state for state, times in entered.items() if times > 1 and len(explored.arms[state]) > 1}
    far = {state for state in explored.arms if state.active[-1][0] == FAR}
    on_cycles = {state for state in following if state in reachable(following[state], following.__getitem__)}
    return frozenset(explored.arms.keys() - shared - far - on_cycles)
