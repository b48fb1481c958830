"""A policy that most of these tests ask about, and short ways to write facts and questions."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from policy.models import PolicyVersion
from tests.conftest import Api


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Give reviews and counts the time to find all that there is, however busy the machine."""
    monkeypatch.setattr("checks.compare.review_walk.SECONDS", 60)
    monkeypatch.setattr("checks.ask_pages.pages.COUNTING", 60)


POLICY = """
actor User {}
resource Org {
  roles = ["member", "admin"];
  permissions = ["read"];
  "member" if "admin";
  "read" if "member";
}
resource Repo {
  roles = ["reader", "writer"];
  permissions = ["read", "write"];
  relations = { organization: Org };
  "reader" if "writer";
  "reader" if "member" on "organization";
  "read" if "reader";
  "read" if is_public(resource);
  "write" if "writer";
}
has_permission(user: User, "read", repo: Repo) if is_root(user) and repo matches Repo;
"""


def fact(predicate: str, *args: str) -> dict:
    """`fact("has_role", "User:ann", "reader", "Repo:a")`: a word without a type is a String."""
    return {"predicate": predicate, "args": [value(arg) for arg in args]}


def value(text: str) -> dict:
    type_name, colon, an_id = text.partition(":")
    return {"type": type_name, "id": an_id} if colon else {"type": "String", "id": text}


def about(actor: str, resource: str = "", **members: object) -> dict:
    """The members of a body that name an actor and a resource."""
    found = {"actor_type": value(actor)["type"], "actor_id": value(actor)["id"], **members}
    if resource:
        found |= {"resource_type": value(resource)["type"], "resource_id": value(resource)["id"]}
    return found


def publish(api: Api, policy: str) -> None:
    answer = api.post("/policy", {"src": policy, "filename": ""})
    assert answer.status_code == 200, answer.content


def store(api: Api, *facts: dict) -> None:
    answer = api.post("/batch", [{"inserts": list(facts)}])
    assert answer.status_code == 200, answer.content


def remove(api: Api, *facts: dict) -> None:
    assert api.post("/batch", [{"deletes": list(facts)}]).status_code == 200


@pytest.fixture
def repos(api) -> Api:
    """ann reads `a` as a reader, `b` by her organisation, `p` as everybody does; root reads every repository."""
    publish(api, POLICY)
    store(
        api,
        fact("has_role", "User:ann", "reader", "Repo:a"),
        fact("has_role", "User:ann", "admin", "Org:o"),
        fact("has_relation", "Repo:b", "organization", "Org:o"),
        fact("has_role", "User:bob", "writer", "Repo:a"),
        fact("is_public", "Repo:p"),
        fact("is_root", "User:root"),
    )
    return api


# ---- the workbench ---------------------------------------------------------------------------------------------------


@pytest.fixture
def version(repos) -> PolicyVersion:
    return PolicyVersion.objects.get()


@pytest.fixture
def admin(version) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


def url(name: str, version: PolicyVersion) -> str:
    return reverse(f"admin:authz_policy_policyversion_{name}", args=[version.pk])
