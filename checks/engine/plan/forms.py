"""How a plan recurses, as exploring the branches of a question shows.

exits only                                              nothing recurses
jumps to states                                         goals, each tested at the exits of its state
a branch that goes on from each answer of a state       answers to the goals
a recursion that takes two of its answers at once       that recursion in rounds: the question is planned again
"""

from __future__ import annotations

from checks.engine.plan.explore import Explored
from checks.engine.plan.plan import Form, Twice
from checks.engine.plan.subqueries import Asked


def form_of(asked: Asked, explored: Explored) -> Form | Twice:
    """Return the form of the plan; or `Twice`, where a recursion must be worked out in rounds first."""
    if explored.twice is not None:
        return explored.twice
    if asked.rounds is not None:
        return Form.ROUNDS
    if explored.goes_on_from_answers:
        return Form.ANSWERS
    if asked.as_set:
        return Form.SET
    if asked.is_path:
        return Form.PATH
    return Form.GOALS if explored.arms else Form.EXITS
