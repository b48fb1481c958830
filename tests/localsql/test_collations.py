"""Ids are compared by their bytes in subqueries, too, whatever their columns' collations, and whatever is cached.

`python -m tests.localsql.run_long --collations` asks many more.
"""

import itertools
from random import Random

import pytest

from tests.localsql.collations import POLICIES, collated_case, unsafe_mentions
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


BINDINGS = """
dialect: mariadb
facts: {"open(Doc:_)": {query: SELECT id FROM docs}}
"""
TABLE = "WITH __f0(a0) AS (\nSELECT id FROM docs\n)"


def test_a_column_that_a_subquery_casts_itself_is_found():
    wrong = f"{TABLE} SELECT 1 FROM __f0 __t0 WHERE NOT EXISTS (SELECT 1 FROM __f0 __t1 WHERE __t1.a0 = BINARY __t0.a0)"
    right = f"{TABLE} SELECT 1 FROM (SELECT *, BINARY a0 AS a0_bytes FROM __f0) __t0 WHERE __t0.a0 > 'a'"
    assert unsafe_mentions(wrong, BINDINGS) == ["__t0.a0"]
    assert unsafe_mentions(wrong.replace("__t0.a0", "__t0.a0_bytes"), BINDINGS) == []
    assert unsafe_mentions(right, BINDINGS) == []
    assert unsafe_mentions(wrong, BINDINGS + "sql_types: {Doc: bigint}") == []
