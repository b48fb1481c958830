"""What a plan means is what its statement answers and what the rules say: the oracle of plans, held to both.

It is trusted to guard changes of the planner for that. `python -m tests.properties.run_plans` asks many more.
"""

from pathlib import Path
from random import Random

import pytest

from tests.properties.plans_by_meaning import about_others, forms_in, planned
from tests.properties.random_policies import Case, random_case
from tests.properties.written import WRITTEN, case_for, written_case

POLICIES = sorted((Path(__file__).parent.parent / "policies").glob("*.polar"))
SMALL_LADDERS = range(15)
OF_ALL_FEATURES = [101, *range(104, 113), 121, 127, 129, 150, 152, 155]  # which are planned soon
FORMS = {
    "FactScan stored", "FactScan inline", "Ids", "Candidates", "Goals", "Answers", "DerivedTable", "DerivedTable wild",
    "DerivedTable wild guarded", "DerivedTable wild same", "Same", "Member", "Cmp", "Tagged", "Holds",
    "Holds not", "guarded", "plan: EXITS", "plan: SET", "plan: GOALS", "plan: PATH", "plan: ANSWERS", "plan: ROUNDS",
    "plan: a plain path",
}  # fmt: skip


def check(case: Case, seed: int) -> None:
    """Every other case is planned as the service does: without facts that are not there."""
    case = about_others(case, Random(seed), 1)
    wrong = [str(each) for each in planned(case, only_known=seed % 2 == 0) if list(each.faults)]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("seed", SMALL_LADDERS)
def test_small_ladders(seed):
    check(random_case(Random(seed), ["small_ladder"]), seed)


@pytest.mark.parametrize("seed", OF_ALL_FEATURES)
def test_policies_of_all_features(seed):
    check(random_case(Random(seed)), seed)


@pytest.mark.parametrize("name", list(WRITTEN))
def test_policies_that_were_written_to_be_tricky(name):
    check(written_case(name, Random(25)), list(WRITTEN).index(name))


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_policies_as_people_write_them(path):
    check(case_for(path.read_text(), path.stem, Random(2)), POLICIES.index(path))


def test_these_plans_are_made_of_everything_that_plans_are_made_of():
    """By the few among the policies above that have what is rare, so that this is quick."""
    of_all = [planned(random_case(Random(seed)), only_known=seed % 2 == 0) for seed in (104, 109, 129)]
    small = planned(random_case(Random(3), ["small_ladder"]), only_known=False)
    tricky = ("an end that is a start", "two answers at once")
    written = [planned(written_case(name, Random(25)), only_known=False) for name in tricky]
    found = {form for each in (*of_all, small, *written) for every in each for form in forms_in(every)}
    assert found >= FORMS


@pytest.mark.parametrize("seed", [*range(3), *OF_ALL_FEATURES[:3]])
def test_what_is_evaluated_in_rounds_is_what_it_would_be_in_one_statement(seed, monkeypatch):
    """As if every question were too large for one."""
    monkeypatch.setattr("checks.engine.plan.unfold.MANY_STEPS", 3)
    check(random_case(Random(seed), ["small_ladder"] if seed < 3 else ()), seed)
