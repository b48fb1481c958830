"""The service answers as the oracle does, on random policies, facts and questions of every kind.

`python -m tests.properties.run_long` asks new ones, as many as there is time for.
"""

import itertools

from tests.properties.differences import outcomes, smallest
from tests.properties.random_policies import case_of
from tests.sampling import seeds

numbers = itertools.count()


@seeds(range(20), 4)
def test_every_answer_is_the_oracles(new_api, seed: int):
    def new_key() -> str:
        return new_api(f"reference{next(numbers)}").key

    for outcome in outcomes(case_of(seed), new_key):
        assert outcome.is_right, f"\n{smallest(outcome, new_key)}"
