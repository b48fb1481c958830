"""Ids of one type are never those of another: numbers are always shared between types."""

import pytest

from tests.checks.conftest import about, fact, publish, store

VIEWER = 'resource Folder { roles = ["viewer"]; permissions = ["read"]; "read" if "viewer"; }'
POLICIES = {
    "groups of actors": f"""
actor User {{}} actor Group {{}}
{VIEWER}
has_role(a: Actor, r: String, f: Folder) if has_group(a, g) and has_role(g, r, f);
""",
    "groups that may be any actor": f"""
actor User {{}} actor Group {{}}
{VIEWER}
has_role(a: Actor, r: String, f: Folder) if g matches Actor and has_group(a, g) and has_role(g, r, f);
""",
}


@pytest.fixture(params=POLICIES)
def groups(api, request):
    """User:7 is in Group:1, and it in Group:2. What is User:2's is nobody else's."""
    publish(api, POLICIES[request.param])
    store(
        api,
        fact("has_group", "User:7", "Group:1"),
        fact("has_group", "Group:1", "Group:2"),
        fact("has_role", "User:2", "viewer", "Folder:c"),
    )
    return api


def test_a_user_has_not_the_rights_of_a_group_of_the_same_id(groups):
    for actor, allowed in (("User:2", True), ("User:7", False), ("User:1", False), ("Group:2", False)):
        who = about(actor, action="read")
        there = {"resource_type": "Folder", "resource_id": "c"}
        assert groups.post("/authorize", {**who, **there}).json() == {"allowed": allowed}, actor
        listed = groups.post("/list", {**who, "resource_type": "Folder", "page_size": 10000}).json()["results"]
        assert listed == (["c"] if allowed else []), actor
        found = groups.post("/actions", about(actor, "Folder:c")).json()["results"]
        assert found == (["read"] if allowed else []), actor
        asked = {**who, "resources": [{"type": "Folder", "id": "c"}]}
        assert bool(groups.post("/authorize_resources", asked).json()["results"]) == allowed, actor
        said = groups.post("/explain", {**who, **there}).json()
        assert said["allowed"] == allowed, actor


def test_a_query_finds_the_users_themselves(groups):
    pattern = {"predicate": "has_role", "args": [
        {"type": "User", "id": None}, {"type": "String", "id": "viewer"}, {"type": "Folder", "id": "c"}
    ]}  # fmt: skip
    found = groups.post("/query", {"fact": pattern}).json()["results"]
    assert [row["args"][0]["id"] for row in found] == ["2"]
