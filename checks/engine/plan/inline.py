"""Which states of a plan stay states, and which are written in place where they are entered.

    the entry jumps to state 0, state 0 to state 1, and state 1 to itself
    ->  the entry, with the branches of state 0 in it, jumps to state 1, and state 1 to itself

A state costs a table of goals; in place, its branches join with what led to them. So a state stays only if it is on a
cycle, if it would be written in place more than once, or if it was made because it is far from the entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from checks.engine.plan.explore import Explored
from checks.engine.plan.plan import Jump
from checks.engine.plan.states import FAR, State
from policy.rules.components import reachable


def inlined(explored: Explored, again: Callable[[frozenset[State]], Explored]) -> Explored:
    """Return the branches explored `again`, with the states in place that need not stay.

    They are not put together from what was explored before: where a state is entered, more is known than in the state,
    so its literals may be resolved in another order and in other ways. Exploring again takes a quarter of planning's
    time (measured on the questions that have golden plans).
    """
    states = in_place(explored)
    if not states:
        return explored
    found = again(states)
    return explored if found.goes_on_from_answers or found.nonlinear is not None else found


def in_place(explored: Explored) -> frozenset[State]:
    """Return the states that need not stay: not on a cycle, not far from the entry (see `FAR`), and entered from one
    place or with one branch only.
    """
    following = {s: {e.state for e in ends if isinstance(e, Jump)} for s, ends in explored.arms.items()}
    entered = Counter(end.state for end in explored.ends() if isinstance(end, Jump))
    shared = {state for state, times in entered.items() if times > 1 and len(explored.arms[state]) > 1}
    far = {state for state in explored.arms if state.active[-1][0] == FAR}
    on_cycles = {state for state in following if state in reachable(following[state], following.__getitem__)}
    return frozenset(explored.arms.keys() - shared - far - on_cycles)
