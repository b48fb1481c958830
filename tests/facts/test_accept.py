"""Facts that the active policy has no use for are refused, with advice."""

import pytest

from facts.accept import FactRejected, check_facts
from facts.wire import Fact, FactBatch
from policy.language.source import Source
from policy.rules import compile_source
from policy.rules.program import Signature
from policy.values import Value
from tests.factories import PolicyVersionFactory

POLICY = """
actor User {}
resource Repo { roles = ["reader"]; permissions = ["read"]; "read" if "reader"; }
declare tagged(Repo, String);
"""


def fact(predicate: str, *types: str) -> Fact:
    return Fact(predicate, tuple(Value(name, "x") for name in types))


@pytest.mark.parametrize("accepted", [fact("has_role", "User", "String", "Repo"), fact("tagged", "Repo", "String")])
def test_useful_facts_are_accepted(accepted):
    check_facts(compile_source(Source(POLICY)), [accepted], "")


@pytest.mark.parametrize(
    ("refused", "advice"),
    [
        (fact("has_rol", "User", "String", "Repo"), "did you mean `has_role`?"),
        (fact("has_role", "User", "String", "Rep"), "did you mean `Repo`?"),
        (fact("tagged", "Repo"), "accepted: `tagged(Repo, String)`"),
        (fact("zzz", "User"), "zzz(User)"),
    ],
)
def test_other_facts_are_refused_with_advice(refused, advice):
    with pytest.raises(FactRejected) as error:
        check_facts(compile_source(Source(POLICY)), [refused], "[0].inserts")
    assert error.value.message.startswith("[0].inserts[0]: the fact `")
    assert "is not used in policy" in error.value.message
    assert advice in error.value.message


def test_facts_that_came_as_ids_are_checked_too():
    with pytest.raises(FactRejected, match="the fact `has_rol"):
        check_facts(compile_source(Source(POLICY)), FactBatch(ids={Signature("has_rol", ("User",)): [("x",)]}), None)


def test_without_a_policy_everything_is_accepted():
    check_facts(None, [fact("anything", "At", "All")], "")


def test_a_batch_is_checked_against_the_active_policy(api):
    PolicyVersionFactory(environment=api.environment, source=POLICY)
    right = {
        "predicate": "has_role",
        "args": [{"type": "User", "id": "a"}, {"type": "String", "id": "b"}, {"type": "Repo", "id": "c"}],
    }
    wrong = {"predicate": "does_not_exist", "args": [{"type": "User", "id": "a"}]}
    answer = api.post("/batch", [{"inserts": [right]}, {"inserts": [right, wrong]}])
    assert answer.status_code == 400
    assert answer.json()["message"] == "[1].inserts[1]: the fact `does_not_exist(User)` is not used in policy"
    assert api.get("/facts").json() == []
    assert api.delete("/facts", wrong).status_code == 200
    assert api.post("/facts", right).status_code == 200
