"""Which requests replicas answer: all questions, and nothing else."""

import time

import pytest

from tests.contract import ASKED
from tests.replicas.conftest import answers, asked, role

QUESTIONS = [
    *ASKED.items(),
    ("/authorize", asked("ann", "a") | {"as_of": 1}),
    ("/access/v1/evaluation", ASKED["/access/v1/evaluation"] | {"options": {"explain": True}}),
]


@pytest.mark.parametrize(("path", "body"), QUESTIONS, ids=lambda each: each if isinstance(each, str) else "")
def test_every_kind_of_question_goes_to_a_replica(cluster_api, path, body):
    api, watching = cluster_api
    assert is_answered_by_a_replica(watching, lambda: api.post(path, body))


def test_facts_are_read_from_a_replica(cluster_api):
    api, watching = cluster_api
    assert is_answered_by_a_replica(watching, lambda: api.get("/facts?predicate=has_role"))


def is_answered_by_a_replica(watching, ask) -> bool:
    """Soon, at least: on a busy machine a replica is left out for a moment, and the primary answers meanwhile."""
    for _ in range(100):
        before, answer = answers(watching), ask()
        assert answer.status_code == 200, answer.json()
        if answers(watching) == before + 1:
            return True
        time.sleep(0.1)
    return False


def test_changes_and_other_reading_are_the_primarys(cluster_api):
    api, watching = cluster_api
    before = sum(each.tries for each in watching.replicas)
    assert api.post("/facts", role("ben", "b")).status_code == 200
    assert api.get("/policy").status_code == api.get("/stats").status_code == 200
    assert api.get("/changes?after=0").status_code == 200
    assert sum(each.tries for each in watching.replicas) == before


@pytest.mark.parametrize("text", ["null", "-1", "1,2", "0x10", "٣"])
def test_a_position_that_cannot_be_read_is_the_primarys(cluster_api, text):
    api, watching = cluster_api
    before = sum(each.tries for each in watching.replicas)
    assert api.post("/authorize", asked("ann", "a"), OsoOffset=text).status_code == 200
    assert sum(each.tries for each in watching.replicas) == before
