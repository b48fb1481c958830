"""Whatever part of the facts lies in tables of the caller's: the produced SQL gives the answers of the oracle."""

import itertools
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.localsql.local_questions import Tally, differences
from tests.properties.ask_adapter import PolicyRefused
from tests.properties.random_policies import random_case

quick = settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
numbers = itertools.count()


@quick
@given(seed=st.integers(0, 10**9))
def test_the_sql_says_what_the_oracle_says(new_api, caller_databases, seed):
    def new_key() -> str:
        return new_api(f"local{next(numbers)}").key

    rng = Random(seed)
    case = random_case(rng)
    try:
        wrong = next(differences(case, rng, new_key, caller_databases, Tally()), None)
    except PolicyRefused:
        return
    assert wrong is None, wrong
