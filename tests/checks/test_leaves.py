"""What explanations say of stored facts and of missing ones: since when, until when, and who."""

import re

import pytest
from django.contrib.auth.models import User
from django.db import connection

from checks.explain.tree import with_periods
from facts.models import Signature
from facts.wire import fact_from_json
from policy.models import Environment, Revision
from tests.checks.conftest import POLICY, about, fact, publish, remove, store
from tests.checks.test_explain_commands import MINUTE, run
from tests.facts.test_history import set_end

WRITER = fact("has_role", "User:bob", "writer", "Repo:b")
END = 1_796_083_200_000_000  # 2026-12-01

WHY = ("ask", "authorize", "--explain", "User:bob", "write", "Repo:b")


def leaves(node: dict) -> list[dict]:
    below = [leaf for each in node.get("because", ()) for leaf in leaves(each)]
    return below or [node]


def explained(api, *asked: str) -> list[dict]:
    actor, action, resource = asked
    body = api.post("/explain", about(actor, resource, action=action)).json()
    roots = [body["proof"]] if body["proof"] else body["obstacles"]
    return [leaf for root in roots for leaf in leaves(root)]


def of_fact(found: list[dict], sent: dict) -> dict:
    (leaf,) = [each for each in found if each.get("fact") == sent]
    return leaf


def test_a_stored_fact_says_since_when_and_by_whom(repos):
    store(repos, WRITER)
    (leaf,) = explained(repos, "User:bob", "write", "Repo:b")
    made = Revision.objects.get(environment=repos.environment, number=3)
    key = repos.environment.api_keys.get()
    assert leaf["since"] == {
        "revision": 3, "at": leaf["since"]["at"], "author": f"key {key.pk}", "kind": "facts",
    }  # fmt: skip
    assert leaf["since"]["author"] == made.author and re.fullmatch(r"20\S{8}T\S{15}Z", leaf["since"]["at"])
    assert "until" not in leaf and "expires_at" not in leaf


def test_a_missing_fact_says_until_when_it_was_there(repos):
    store(repos, WRITER)
    remove(repos, WRITER)
    found = explained(repos, "User:bob", "write", "Repo:b")
    leaf = of_fact(found, WRITER)
    assert leaf["kind"] == "missing" and leaf["note"] == "no matching fact, and no rule applies"
    assert (leaf["since"]["revision"], leaf["until"]["revision"], leaf["until"]["kind"]) == (3, 4, "facts")
    assert all("until" not in each and "since" not in each for each in found if each is not leaf)
    said = run(*WHY)
    key = repos.environment.api_keys.get().pk
    assert re.search(rf"rule applies; stored until revision 4, {MINUTE}, deleted by key {key}\n", said)


def test_a_fact_that_was_never_there_says_nothing(repos):
    assert all(not each.keys() & {"since", "until"} for each in explained(repos, "User:bob", "write", "Repo:b"))


def test_context_facts_say_nothing(repos):
    store(repos, WRITER)
    body = about("User:bob", "Repo:b", action="write", context_facts=[WRITER])
    (leaf,) = leaves(repos.post("/explain", body).json()["proof"])
    assert leaf["source"] == "context" and "since" not in leaf


def test_an_end_is_said(repos):
    store(repos, WRITER)
    set_end(repos.environment, fact_from_json(WRITER, ""), END)
    (leaf,) = explained(repos, "User:bob", "write", "Repo:b")
    assert leaf["expires_at"] == "2026-12-01T00:00:00Z"
    assert run(*WHY).endswith("(revision 4), until 2026-12-01T00:00Z\n")


def test_a_fact_of_before_revisions_says_so(repos):
    store(repos, WRITER)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE authz_fact SET since = 0")
    Environment.objects.filter(pk=repos.environment.pk).update(horizon=17)
    (leaf,) = explained(repos, "User:bob", "write", "Repo:b")
    assert leaf["since"] == {"revision": None, "at": None, "author": None, "kind": None, "before": 17}
    assert "stored fact, since before revision 17\n" in run(*WHY)


def test_a_stored_fact_that_the_policy_has_no_use_for_is_not_said_to_have_been_there(repos):
    store(repos, WRITER)
    publish(repos, POLICY.replace('"writer"', '"author"'))
    assert all("until" not in each for each in explained(repos, "User:bob", "write", "Repo:b"))


def test_all_leaves_of_a_question_are_looked_up_together(repos, monkeypatch):
    asked = []
    looked_up = with_periods.__globals__["latest_periods"]
    monkeypatch.setitem(
        with_periods.__globals__, "latest_periods", lambda *args: asked.append(len(args[1])) or looked_up(*args)
    )
    assert len(explained(repos, "User:ann", "read", "Repo:b")) == 2
    assert asked == [2]


@pytest.mark.parametrize(
    ("revision", "since", "until"), [(2, None, None), (3, 3, None), (4, 3, 4), (5, 5, None), (6, 5, 6)]
)
def test_leaves_as_of_a_revision(repos, revision, since, until):
    """What came later is not told."""
    for change in (store, remove, store, remove):
        change(repos, WRITER)
    body = repos.post("/explain", about("User:bob", "Repo:b", action="write", as_of=revision)).json()
    roots = [body["proof"]] if body["proof"] else body["obstacles"]
    leaf = of_fact([leaf for root in roots for leaf in leaves(root)], WRITER)
    told = [leaf[name]["revision"] if name in leaf else None for name in ("since", "until")]
    assert (body["allowed"], told) == (revision in (3, 5), [since, until])


def test_a_fact_that_has_come_to_its_end_says_so(repos):
    """Swept or not."""
    given = fact_from_json(WRITER, "")
    store(repos, WRITER)
    set_end(repos.environment, given, 1_000_000_000_000_000)  # 2001-09-09 01:46:40
    Signature.objects.filter(environment=repos.environment, predicate="has_role").update(may_end=True)
    Environment.objects.filter(pk=repos.environment.pk).update(ends_mark=7, signature_mark=7)
    said = "; expired 2001-09-09T01:46Z\n"
    assert said in run(*WHY)
    remove(repos, WRITER)
    assert said in run(*WHY)


def test_the_workbench_says_it_and_leads_there(repos, client):
    store(repos, WRITER)
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    version = repos.environment.policy_versions.get().pk
    asked = f"/admin/policy/policyversion/{version}/ask/?kind=authorize&version={version}&action=write"
    text = client.get(f"{asked}&actor=User:bob&resource=Repo:b").content.decode()
    there = f'<a href="/admin/facts/signature/revision/{repos.environment.pk}/3/">since 20'
    assert there in text
    remove(repos, WRITER)
    text = client.get(f"{asked}&actor=User:bob&resource=Repo:b").content.decode()
    assert f'<a href="/admin/facts/signature/revision/{repos.environment.pk}/4/">stored until revision 4' in text
