"""Drops what a recursion can never use: moves from goals that are not reached, reads of answers that nothing makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from checks.engine.plan.plan import AnswerArm, Answers, Branch, Goals, Plan, Tagged
from policy.rules.components import reachable


def pruned(plan: Plan) -> Plan:
    goals = _reached(plan)
    moves = tuple(jump for jump in plan.moves if _is_fed(jump.branch, Goals, goals))
    arms = [arm for arm in plan.answers if _is_fed(arm.exit.branch, Goals, goals)]
    made = _answered(arms)
    answers = tuple(arm for arm in arms if _is_fed(arm.exit.branch, Answers, made))
    exits = tuple(end for end in plan.exits if _is_fed(end.branch, Goals, goals) and _is_fed(end.branch, Answers, made))
    return replace(plan, exits=exits, moves=moves, answers=answers)


def _reached(plan: Plan) -> set[int]:
    """Return the tags of all goals that the recursion reaches."""

    def following(tag: int) -> Iterator[int]:
        return (plan.tag_of[jump.state] for jump in plan.moves if tag in _tags(jump.branch, Goals))

    return set(reachable((plan.tag_of[jump.state] for jump in plan.seeds), following))


def _answered(arms: list[AnswerArm]) -> set[int]:
    found: set[int] = set()
    while True:
        more = {arm.tag for arm in arms if _is_fed(arm.exit.branch, Answers, found)} - found
        if not more:
            return found
        found |= more


def _is_fed(branch: Branch, kind: type[Goals] | type[Answers], tags: set[int]) -> bool:
    return _tags(branch, kind) <= tags


def _tags(branch: Branch, kind: type[Goals] | type[Answers]) -> set[int]:
    numbers = {source.number for source in branch.sources if isinstance(source, kind)}
    return {each.tag for each in branch.conditions if isinstance(each, Tagged) and each.source in numbers}
