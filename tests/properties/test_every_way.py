"""Ladders of recursion and policies that were written to be tricky: every way of asking says what the oracle says.

`python -m tests.properties.run_long` asks many more.
"""

import itertools
from random import Random

import pytest

from tests.properties.ask_adapter import PolicyRefused
from tests.properties.differences import outcomes
from tests.properties.every_way import in_every_way
from tests.properties.random_policies import random_case
from tests.properties.written import WRITTEN, written_case
from tests.sampling import some

numbers = itertools.count()


@pytest.fixture
def new_key(new_api):
    return lambda: new_api(f"everyway{next(numbers)}").key


@pytest.mark.parametrize("seed", some(range(3), 3))
def test_ladders(new_key, seed):
    rng = Random(seed)
    check(in_every_way(random_case(rng, ["ladders"]), rng, 1), new_key)


@pytest.mark.parametrize("name", some(WRITTEN, 4))
def test_written_policies(new_key, name):
    rng = Random(1)
    case = in_every_way(written_case(name, rng), rng, 1)
    check(case, new_key)


def check(case, new_key) -> None:
    try:
        found = outcomes(case, new_key)
    except PolicyRefused as refused:
        pytest.skip(str(refused))
    wrong = [str(outcome) for outcome in found if not outcome.is_right]
    assert not wrong, "\n\n".join(wrong)
