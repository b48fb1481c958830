"""Ids are compared by their bytes in subqueries, too, whatever their columns' collations, and whatever is cached.

`python -m tests.localsql.run_long --collations` asks many more.
"""

import itertools
from random import Random

import pytest

from tests.localsql.collations import POLICIES, collated_case
from tests.localsql.local_questions import Tally, differences
from tests.localsql.moving import all_moved
from tests.properties.ask_adapter import _post

numbers = itertools.count()


@pytest.mark.parametrize("name", POLICIES)
def test_equal_ids_are_told_apart_in_subqueries(new_api, caller_databases, name):
    tally, rng = Tally(), Random(len(name))
    case = collated_case(name, rng)

    def new_key() -> str:
        return new_api(f"collated{next(numbers)}").key

    wrong = list(differences(case, rng, new_key, caller_databases, tally, _post, all_moved))
    assert not wrong, f"{len(wrong)} of {tally.asked}, such as {min(wrong, key=len)}"
    print(tally)
    assert tally.asked
