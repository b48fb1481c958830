"""The service answers as the oracle does, on random policies, facts and questions of every kind."""

import itertools

from hypothesis import HealthCheck, Phase, given, settings

from tests.properties.differences import outcomes, smallest
from tests.properties.random_policies import Case, cases

quick = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,  # the same everywhere: `run_long` asks new ones
    phases=(Phase.explicit, Phase.generate),  # shrinking would ask for minutes
    suppress_health_check=list(HealthCheck),
)
numbers = itertools.count()


@quick
@given(case=cases())
def test_every_answer_is_the_oracles(new_api, case: Case):
    def new_key() -> str:
        return new_api(f"reference{next(numbers)}").key

    for outcome in outcomes(case, new_key):
        assert outcome.is_right, f"\n{smallest(outcome, new_key)}"
