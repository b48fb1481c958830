"""Types that no block declares, but that rules ask facts of: stored, asked and explained as declared ones are."""

import pytest

from tests.checks.conftest import about, fact, publish, store

POLICY = """
actor User {}
resource Repo { permissions = ["read", "write"]; }
has_permission(user: User, action: String, repo: Repo) if
  role matches Role and has_role(user, role, repo) and grants_permission(role, action);
"""
FACTS = [
    fact("has_role", "User:ann", "Role:editor", "Repo:a"),
    fact("has_role", "User:ann", "Role:guest", "Repo:b"),
    fact("has_role", "User:bob", "Role:guest", "Repo:a"),
    fact("grants_permission", "Role:editor", "read"),
    fact("grants_permission", "Role:editor", "write"),
]


@pytest.fixture
def roles(api):
    publish(api, POLICY)
    store(api, *FACTS)
    return api


def test_decisions_follow_from_their_facts(roles):
    for user, repo, allowed in (("ann", "a", True), ("ann", "b", False), ("bob", "a", False)):
        question = about(f"User:{user}", f"Repo:{repo}", action="read")
        assert roles.post("/authorize", question).json() == {"allowed": allowed}
        context = [fact("grants_permission", "Role:guest", "read")]
        assert roles.post("/authorize", {**question, "context_facts": context}).json() == {"allowed": True}
    assert roles.post("/actions", about("User:ann", "Repo:a")).json() == {"results": ["read", "write"]}
    body = {**about("User:ann"), "action": "read", "resource_type": "Repo", "page_size": 10_000}
    assert roles.post("/list", body).json()["results"] == ["a"]
    assert roles.post("/explain", about("User:ann", "Repo:a", action="read")).json()["allowed"] is True


def test_queries_range_over_them(roles):
    query = {
        "predicate": ["grants_permission", ["role", "action"]],
        "calls": [["has_role", ["user", "role", "repo"]]],
        "constraints": {
            name: {"type": type_name, "ids": None}
            for name, type_name in {"role": "Role", "action": "String", "user": "User", "repo": "Repo"}.items()
        },
    }
    found = roles.post("/evaluate_query", query).json()["results"]
    assert found == [{"role": "editor", "action": action, "user": "ann", "repo": "a"} for action in ("read", "write")]
    listed = roles.post("/query", {"fact": {"predicate": "has_role", "args": [None, {"type": "Role"}, None]}}).json()
    assert listed["results"] == FACTS[:3]


def test_they_are_warned_of_where_suggestions_are(api):
    answer = api.post("/policy?show_suggestions=true", {"src": POLICY})
    assert "type `Role` is used in rules, but not declared" in answer.json()["message"]
    assert set(api.get("/policy_metadata").json()["metadata"]["resources"]) == {"Repo", "User", "global"}
