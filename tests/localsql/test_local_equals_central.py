"""Whatever part of the facts lies in tables of the caller's: the produced SQL gives the answers of the oracle.

`python -m tests.localsql.run_long` asks many more.
"""

import itertools
from contextlib import suppress
from random import Random

import pytest

from tests.localsql.local_questions import Tally, differences
from tests.properties.ask_adapter import PolicyRefused
from tests.properties.random_policies import Case, random_case
from tests.properties.written import written_case
from tests.sampling import some

numbers = itertools.count()


@pytest.mark.parametrize("seed", some(range(4), 4))
def test_the_sql_says_what_the_oracle_says(new_api, caller_databases, seed):
    rng = Random(seed)
    check(random_case(rng), rng, new_api, caller_databases)


@pytest.mark.parametrize("name", some(("denied inside", "a role that changes on its way", "everyone but some"), 3))
def test_the_sql_of_written_policies(new_api, caller_databases, name):
    rng = Random(2)
    check(written_case(name, rng), rng, new_api, caller_databases)


def check(case: Case, rng: Random, new_api, databases) -> None:
    def new_key() -> str:
        return new_api(f"local{next(numbers)}").key

    with suppress(PolicyRefused):
        assert not (wrong := next(differences(case, rng, new_key, databases, Tally()), None)), wrong
