"""What was answered once is answered again as of then: a few histories; `run_histories` plays as many as you like."""

import itertools
from random import Random

import pytest

from tests.properties.ask_adapter import PolicyRefused
from tests.properties.histories import outcomes
from tests.sampling import some

numbers = itertools.count()


@pytest.mark.parametrize("seed", some(range(4), 4))
def test_answers_stay_what_they_were(new_api, seed):
    def new_key() -> str:
        return new_api(f"history{next(numbers)}").key

    try:
        history, found = outcomes(Random(seed), seed, new_key, steps=8)
    except PolicyRefused as refused:
        pytest.skip(str(refused))
    assert {"revisions", "counts", "facts"} < {outcome.kind for outcome in found}
    wrong = [outcome.fault for outcome in found if outcome.fault]
    assert not wrong, "\n".join([str(history), *wrong])
