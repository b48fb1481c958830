"""Explanations of random policies, and what is left of them where their time ends: every line is true by the oracle."""

import itertools
import time
from math import inf
from random import Random

import pytest

from checks.asking import snapshot
from checks.asking.snapshot import Snapshot
from policy.language import parse
from policy.language.source import Source
from tests.checks.proofs import Truth, clauses_by_line, faults_of
from tests.properties import ask_adapter
from tests.properties.ask_adapter import Caller, PastLimit
from tests.properties.differences import fitted
from tests.properties.questions import Refused
from tests.properties.random_policies import Case, case_of
from tests.reference import World, model_of
from tests.sampling import seeds

MOST_STEPS = 4_000  # plans and statements of one explanation
numbers = itertools.count()


@pytest.fixture
def counted(monkeypatch):
    """Counts the steps of an explanation, and ends its time after so many: [counted, most]."""
    counts, check_time = [0, MOST_STEPS], Snapshot.check_time

    def counting(self) -> None:
        if self.ends < inf:
            counts[0] += 1
            if counts[0] > counts[1]:
                self.ends = 0.0  # by the clock of this thread
        check_time(self)

    monkeypatch.setattr(Snapshot, "check_time", counting)
    return counts


@seeds(range(20), 4)
def test_what_is_told_is_true_wherever_the_time_ends(new_api, counted, seed: int):
    rng, case = Random(seed), fitted(case_of(seed))
    caller = Caller(new_api(f"explaining{next(numbers)}").key)
    ask_adapter.publish(caller, case.policy)
    ask_adapter.store(caller, case.facts)
    known = truth_of(case)
    for predicate, row in case.goals:
        whole, steps = explained(caller, predicate, row, counted, MOST_STEPS)
        if whole is None:
            continue
        assert steps <= MOST_STEPS
        for most in {0, *(rng.randrange(steps + 1) for _ in range(4))}:
            part, _ = explained(caller, predicate, row, counted, most)
            assert part is not None and part["allowed"] == whole["allowed"]
            assert "complete" not in whole or part["complete"] is False
            assert faults(part["calls"][0], predicate, row, known) == []


def explained(caller: Caller, predicate: str, row: tuple, counted: list, most: int) -> tuple[dict | None, int]:
    """The answer, and how many steps it took; None where the goal cannot be asked about."""
    snapshot.published.clear()
    counted[:] = 0, most
    try:
        said = ask_adapter.explained(caller, predicate, row)
    except PastLimit:
        return None, 0
    return (None, 0) if isinstance(said, Refused) else (said, counted[0])


def truth_of(case: Case) -> Truth:
    policy = parse(Source(case.policy))
    mentioned = [value for _, row in case.goals for value in row]
    world = World.of(policy, [*case.facts], mentioned, int(time.time()))
    model = model_of(policy, [*case.facts], world)
    return Truth(world, model, frozenset(case.facts), frozenset(), clauses_by_line(policy, case.policy))


def faults(goal: dict, predicate: str, row: tuple, known: Truth) -> list[str]:
    """What is wrong with what is told; that something is left out is not."""
    return [each for each in faults_of(goal, (predicate, row), known) if " is unexplained: " not in each]
