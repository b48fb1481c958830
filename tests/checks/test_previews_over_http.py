"""Policy previews and access reviews over HTTP."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from authz_project.keys import create_key
from checks import views
from checks.compare import review_walk
from policy.active import Scope
from policy.models import PolicyVersion
from tests.checks.conftest import POLICY, fact, publish, remove, store

DRAFT = POLICY.replace('"write" if "writer";', '"write" if "reader";')
WRITES = {"check": 'allow(User:ann, "write", Repo:a)', "allowed": True}


def key_with(repos, scope: Scope) -> dict[str, str]:
    _, token = create_key(repos.environment, "limited", scopes=[scope])
    return {"Authorization": f"Bearer {token}"}


# ---- previews ------------------------------------------------------------------------------------------------------


def test_a_preview_names_the_differences_and_changes_nothing(repos):
    found = repos.post("/preview_policy", {"src": DRAFT, "filename": "draft.polar"})
    assert found.status_code == 200, found.content
    assert WRITES in found.json()["differences"] and found.json()["differ"] >= len(found.json()["differences"]) > 0
    assert PolicyVersion.objects.filter(environment=repos.environment).count() == 1
    assert found.headers["OsoOffset"] == repos.get("/facts").headers["OsoOffset"]


def test_tests_that_fail_and_facts_without_use_are_named(repos):
    failing = 'actor User {} resource Repo { permissions = ["p"]; } '
    failing += 'test "t" { assert allow(User{"a"}, "p", Repo{"r"}); }'
    found = repos.post("/preview_policy", {"src": failing}).json()
    assert found["failed_tests"] == ["t"] and "1 of 1" in found["tests"]
    assert "is_root(User): 1" in found["unused_facts"]


def test_a_policy_that_does_not_compile_is_refused_as_by_publishing(repos):
    refused = repos.post("/preview_policy", {"src": "actor"})
    assert refused.status_code == 400
    assert refused.json() == repos.post("/policy", {"src": "actor"}).json()


@pytest.mark.parametrize("scope", [Scope.READ, Scope.FACTS])
def test_a_preview_needs_the_scope_of_publishing(repos, scope):
    refused = repos.request("POST", "/preview_policy", {"src": DRAFT}, **key_with(repos, scope))
    assert refused.status_code == 403
    assert repos.request("POST", "/preview_policy", {"src": POLICY}, **key_with(repos, Scope.POLICY)).status_code == 200


def test_one_preview_runs_at_a_time(repos):
    with views.PreviewPolicy._running:
        refused = repos.post("/preview_policy", {"src": DRAFT})
    assert refused.status_code == 503 and "another preview" in refused.json()["message"]
    assert repos.post("/preview_policy", {"src": "actor"}).status_code == 400
    assert repos.post("/preview_policy", {"src": DRAFT}).status_code == 200, "the one before has ended"


# ---- reviews -------------------------------------------------------------------------------------------------------


def asked(repos, query: dict[str, str]):
    return repos.get(f"/review_access?{urlencode(query)}")


def review(repos, query: dict[str, str]) -> dict:
    found = asked(repos, query)
    assert found.status_code == 200, found.content
    return found.json()


def test_a_review_lists_what_was_gained_and_lost(repos):
    store(repos, fact("has_role", "User:cat", "reader", "Repo:a"))
    before = repos.get("/facts").headers["OsoOffset"]
    remove(repos, fact("has_role", "User:cat", "reader", "Repo:a"))
    store(repos, fact("has_role", "User:cat", "writer", "Repo:c"))
    found = review(repos, {"from": before, "actor": "User:cat"})
    lines = [(line["state"], line["actor"]["id"], line["action"], line["resource"]["id"]) for line in found["results"]]
    assert sorted(lines) == [
        ("gained", "cat", "read", "c"),
        ("gained", "cat", "write", "c"),
        ("lost", "cat", "read", "a"),
    ]
    assert found["next_page_token"] is None and found["not_answered"] == []
    had = review(repos, {"at": before, "actor": "User:cat", "action": "read"})["results"]
    assert {(line["state"], line["resource"]["id"]) for line in had} == {("has", "a"), ("has", "p")}


def test_a_star_stands_for_every_value(repos):
    found = review(repos, {"at": repos.get("/facts").headers["OsoOffset"], "actor": "User:root", "action": "read"})
    assert {"type": "Repo", "id": "*"} in [line["resource"] for line in found["results"]]


def test_pages_of_a_review_follow_each_other(repos, monkeypatch):
    store(repos, *(fact("has_role", "User:dan", "reader", f"Repo:r{number:03}") for number in range(30)))
    query = {"at": repos.get("/facts").headers["OsoOffset"], "actor": "User:dan", "action": "read"}
    whole = review(repos, query)["results"]
    monkeypatch.setattr(review_walk, "PAGE", 10)
    found, pages, token = [], 0, ""
    while token is not None:
        page = review(repos, query | {"page_token": token})
        found, pages, token = found + page["results"], pages + 1, page["next_page_token"]
    assert found == whole and len(found) == 31 and pages >= 4
    token = review(repos, query)["next_page_token"]
    refused = asked(repos, query | {"action": "write", "page_token": token})
    assert refused.status_code == 400 and "not a valid cursor of this list" in refused.json()["message"]


def test_pages_of_a_review_go_on_though_facts_of_a_new_kind_are_stored(api, monkeypatch):
    """The kinds of access are those of the moment: an action of its own now was one of any action then."""
    publish(
        api,
        """actor User {} actor Bot {} resource Repo { permissions = ["read"]; }
        allow(u: User, a: String, r: Repo) if has_permission(u, a, r);
        allow(u: Actor, "pull", r: Repo) if is_open(r);""",
    )
    store(api, *(fact("has_permission", "User:dan", "pull", f"Repo:r{number}") for number in range(6)))
    query = {"at": api.get("/facts").headers["OsoOffset"]}
    whole = review(api, query)["results"]
    monkeypatch.setattr(review_walk, "PAGE", 2)
    found, token = [], ""
    while token is not None:
        page = review(api, query | {"page_token": token})
        found, token = found + page["results"], page["next_page_token"]
        store(api, fact("is_open", f"Repo:{len(found)}"))
    assert len(whole) == 6 and found == whole


@pytest.mark.parametrize(("query", "told"), [
    ({}, "from: is required"), ({"from": "1", "at": "1"}, "from: is required"),
    ({"at": "1", "to": "1"}, "to: requires"),
    ({"from": "soon"}, "from"), ({"from": "1", "page_token": "x"}, "not a valid cursor"),
    ({"from": "99"}, "from: revision 99 does not"), ({"at": "99"}, "at: revision 99 does not"),
    ({"from": "1", "actor": "Usr"}, "no type `Usr`"), ({"at": "1", "action": "raed"}, "no action `raed`"),
    ({"from": "3", "to": "2"}, "after the end"),
])  # fmt: skip
def test_a_malformed_review_is_refused(repos, query, told):
    store(repos, fact("is_public", "Repo:q"))
    refused = asked(repos, query)
    assert refused.status_code == 400 and told in refused.json()["message"], refused.content


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_review_ignores_what_it_does_not_know(repos):
    query = {"at": "2", "actor": "User:ann"}
    assert review(repos, query | {"filter": "\0"}) == review(repos, query)


def test_an_action_that_no_fact_can_name_is_refused(repos):
    """By this policy an action may have any name, so it is not refused as an unknown one."""
    publish(repos, "actor User {} resource Repo {} allow(u: User, a: String, r: Repo) if may(u, a, r);")
    store(repos, fact("may", "User:ann", "zap", "Repo:a"))
    for action in ("\0", "*", "x" * 513):
        refused = asked(repos, {"at": repos.get("/facts").headers["OsoOffset"], "action": action})
        assert refused.status_code == 400 and "action: must" in refused.json()["message"], refused.content


def test_a_review_needs_a_key_that_reads(repos):
    refused = repos.request("GET", "/review_access?at=1", None, **key_with(repos, Scope.FACTS))
    assert refused.status_code == 403
