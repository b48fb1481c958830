"""The engine inside a Django project, held to the oracle: its long form is `run_embedded`."""

from random import Random

import pytest

from authz_project.keys import create_key
from policy.models import Environment
from tests.properties.ask_adapter import PolicyRefused
from tests.properties.embedded import differences
from tests.properties.every_way import in_every_way
from tests.properties.written import some_case


@pytest.mark.parametrize("is_remote", [False, True], ids=["engine", "server"])
@pytest.mark.parametrize("seed", range(12))
def test_models_and_stored_facts_together_answer_as_the_oracle_does(db, seed, is_remote):
    seed += 1000 * (db == "postgresql") + 100 * is_remote
    rng = Random(seed)
    case = in_every_way(some_case(seed, rng, (), False), rng, 1)
    try:
        found, _ = differences(case, seed, new_key, is_remote)
    except PolicyRefused:
        return
    assert [str(each) for each in found if not each.is_right] == []


def new_key() -> str:
    return create_key(Environment.objects.create(slug="embedded", name="embedded"))[1]
