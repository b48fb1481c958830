"""Questions about given values are always answered, and lists where facts bind what is asked: now, and as of now.

`python -m tests.properties.run_long --bare` (or `--mixed`) asks about new programs, as many as there is time for.
"""

import itertools
from random import Random

import pytest

from tests.properties.bare import bare_case, now_and_then
from tests.properties.differences import outcomes, smallest
from tests.sampling import seeds

numbers = itertools.count()


@pytest.mark.parametrize("is_restricted", [False, True])
@seeds(range(30), 10)
def test_it_is_answered_as_the_oracle_answers_it(new_api, seed, is_restricted):
    def new_key() -> str:
        return new_api(f"bare{next(numbers)}").key

    for outcome in outcomes(bare_case(Random(seed), is_restricted), new_key, now_and_then):
        assert outcome.is_right, f"\n{smallest(outcome, new_key)}"


@seeds(range(12), 3)
def test_of_subtypes_values_in_heads_and_context_too(new_api, seed):
    def new_key() -> str:
        return new_api(f"mixed{next(numbers)}").key

    for outcome in outcomes(bare_case(Random(seed), is_mixed=True), new_key, now_and_then):
        assert outcome.is_right, f"\n{smallest(outcome, new_key)}"
