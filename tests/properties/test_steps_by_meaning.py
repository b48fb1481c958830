"""Each step of planning keeps the meaning of what it was taken from; so do graphs and plans, which are made of steps.

`python -m tests.properties.run_steps` holds many more.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest

from checks.engine.plan import planner
from checks.engine.plan.draft import Draft, bind
from checks.engine.plan.plan import Branch
from checks.engine.plan.planner import Explored, _Work
from checks.engine.plan.unfold import Subqueries, Unfolder
from checks.engine.rules.clauses import FRESH
from policy.errors import AuthzError
from tests.properties.steps_by_meaning import Held, held
from tests.properties.written import case_for, some_case

EVERY_DAY = 90  # policies
AT_ONCE = 15
IN_OTHER_ORDERS = [*range(5), *range(6, 16)]  # the policy of 5 has too many orders


def held_of(seed: int, in_order: bool = True) -> Iterator[Held]:
    """Every third policy is a small ladder: recursion upon recursion."""
    rng = Random(seed)
    case = some_case(seed, rng, ["small_ladder"] if seed % 3 == 0 else [], is_written=False)
    try:
        yield from held(case, rng, in_order=in_order)
    except AuthzError:  # it is no policy
        return


@pytest.mark.parametrize("first", range(0, EVERY_DAY, AT_ONCE))
def test_steps_keep_the_meaning_of_random_questions(first):
    wrong = [str(each) for seed in range(first, first + AT_ONCE) for each in held_of(seed) if each.is_wrong]
    assert not wrong, "\n\n".join(wrong)


def test_any_order_of_resolving_literals_keeps_the_meaning():
    wrong = [str(each) for seed in IN_OTHER_ORDERS for each in held_of(seed, in_order=False) if each.is_wrong]
    assert not wrong, "\n\n".join(wrong)


# ---- faults ---------------------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """What is put in place of which name, what is then seen to be wrong, and a policy that shows it, or its seed."""

    place: object
    name: str
    other: Callable
    seen: str
    seed: int = 0
    policy: str = ""


def without_last(own: Callable) -> Callable:
    """The step without the last of what comes of it."""
    return lambda *args: list(own(*args))[:-1]


def untested(own: Callable) -> Callable:
    """The step with nothing that comes of it tested."""

    def step(*args):
        found = own(*args)
        return [replace(each, conditions=()) if isinstance(each, Draft) else _untested(each) for each in found]

    return step


def _untested(end):
    return replace(end, branch=Branch(end.branch.sources))


def changed(own: Callable, **fields: object) -> Callable:
    return lambda *args: replace(own(*args), **fields)


def forgetful(own: Callable) -> Callable:
    def with_tests(self, draft):
        settled = own(self, draft)
        return settled and replace(settled, conditions=draft.conditions)

    return with_tests


SOME_VALUE = """
actor User {} resource Folder { permissions = ["p0"]; }
reaches(user: User, f: Folder) if superuser(user) and not barred(user, f);
locked(f: Folder) if not opened(f);
has_permission(user: User, "p0", f: Folder) if folder(f) and reaches(user, other) and not locked(other);
"""
FAULTS = {
    "tests are forgotten": Fault(Subqueries, "with_tests", forgetful(Subqueries.with_tests), "finished", 13),
    "facts are any": Fault(Unfolder, "_read_at", changed(Unfolder._read_at, conditions=()), "Scan", 0),
    "a store is left out": Fault(Unfolder, "scanned", without_last(Unfolder.scanned), "Scan", 0),
    "a value is left out": Fault(Unfolder, "listed", without_last(Unfolder.listed), "Member", 277),
    "the given is forgotten": Fault(Unfolder, "given", without_last(Unfolder.given), "Given", 6),
    "a clause is left out": Fault(Unfolder, "in_place", without_last(Unfolder.in_place), "IN_PLACE", 2),
    "a path ends nowhere": Fault(Unfolder, "empty_path", without_last(Unfolder.empty_path), "EMPTY_PATH", 153),
    "what has to hold is not tested": Fault(Unfolder, "tested", lambda self, call, rest: [rest], "TESTED", 3),
    "answers of a kind are left out": Fault(Subqueries, "joined", without_last(Subqueries.joined), "JOINED", 2),
    "answers are any": Fault(Subqueries, "joined", untested(Subqueries.joined), "JOINED", 19),
    "a path leads nowhere": Fault(
        Subqueries, "after_prefix", without_last(Subqueries.after_prefix), "AFTER_PREFIX", 68
    ),
    "anything enters": Fault(Unfolder, "entered", untested(Unfolder.entered), "ENTERED", 2),
    "nothing is left to do": Fault(
        Unfolder, "joined_to_state", changed(Unfolder.joined_to_state, rest=()), "JOINED_TO_STATE", 10
    ),
    "guards are forgotten": Fault(
        Unfolder, "finished", lambda self, draft: finished(self, replace(draft, pending=())), "finished", 112
    ),
    "some value is one that nothing mentions": Fault(
        Unfolder, "_with_some", lambda _, draft, free, others: bind(draft, {free: FRESH}), "finished", policy=SOME_VALUE
    ),
    "a branch is lost": Fault(Explored, "collected", without_last(Explored.collected), "explored", 2),
    "a branch is lost in place": Fault(planner, "inlined", changed(planner.inlined, entry=[]), "plan: EXITS", 4),
    "goals are not moved on": Fault(planner, "goals_plan", changed(planner.goals_plan, moves=()), "plan: GOALS", 34),
    "answers lead nowhere": Fault(_Work, "finish", lambda self: None, "plan: ANSWERS", 63),
    "answers go no round": Fault(_Work, "finish", lambda self: None, "plan: ROUNDS", 75),
}
finished = Unfolder.finished


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_is_found_where_it_is(name, monkeypatch):
    fault = FAULTS[name]
    monkeypatch.setattr(fault.place, fault.name, fault.other)
    assert any(each.is_wrong and each.said.kind == fault.seen for each in held_in(fault))


def held_in(fault: Fault) -> Iterator[Held]:
    """Of that policy; a change of the planner may change what a seed shows, so then of others."""
    if fault.policy:
        for seed in range(20):
            yield from held(case_for(fault.policy, "a fault", Random(seed)), Random(seed))
    else:
        for seed in (fault.seed, *range(200)):
            yield from held_of(seed)
