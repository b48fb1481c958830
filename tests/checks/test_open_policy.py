"""While an environment has no policy, every fact means something, and a permission that is a fact is allowed."""

from tests.checks.conftest import about, fact, publish, store

LIKES = {
    "predicate": ["likes", ["u", "d"]],
    "constraints": {"u": {"type": "User", "ids": ["ann"]}, "d": {"type": "Doc", "ids": ["d"]}},
}


def test_any_fact_can_be_asked_about_and_explained(api):
    assert api.post("/evaluate_query", LIKES).json() == {"results": []}
    store(api, fact("likes", "User:ann", "Doc:d"))
    assert api.post("/evaluate_query", LIKES).json() == {"results": [{"u": "ann", "d": "d"}]}
    explained = api.post("/explain", LIKES).json()
    assert (explained["allowed"], explained["policy_version"]) == (True, None)
    assert explained["calls"][0]["proof"]["source"] == "stored"


def test_any_fact_can_be_brought(api):
    context = [fact("has_permission", "User:ann", "read", "Doc:d"), fact("likes", "User:ann", "Doc:d")]
    question = {**about("User:ann", "Doc:d", action="read"), "context_facts": context}
    assert api.post("/authorize", question).json() == {"allowed": True}
    assert api.post("/evaluate_query", {**LIKES, "context_facts": context}).json()["results"]
    assert api.post("/explain", question).json()["proof"]["because"][0]["source"] == "context"


def test_a_policy_ends_it(api):
    question = about("User:ann", "Doc:d", action="read")
    store(api, fact("has_permission", "User:ann", "read", "Doc:d"), fact("likes", "User:ann", "Doc:d"))
    assert api.post("/authorize", question).json() == {"allowed": True}
    publish(api, "actor User {} resource Doc {}")
    for path in ("/evaluate_query", "/explain"):
        assert "the policy has no predicate `likes`" in api.post(path, LIKES).json()["message"]
