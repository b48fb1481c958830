"""The workbench's pages: asking, explaining, drawing and comparing in the admin."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from checks.workbench.graph import sheets_of
from facts.mentioned_ids import known_ids
from policy import rules
from policy.clock import time_of
from policy.models import Environment, PolicyVersion, Revision
from tests.checks.conftest import POLICY, fact, publish, store


@pytest.fixture
def version(repos) -> PolicyVersion:
    return PolicyVersion.objects.get()


@pytest.fixture
def admin(version) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


def url(name: str, version: PolicyVersion) -> str:
    return reverse(f"admin:policy_policyversion_{name}", args=[version.pk])


def words(answer) -> str:
    """The page's text on one line, without its tags."""
    assert answer.status_code == 200, answer.status_code
    body = answer.content.decode().partition('<div id="content"')[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", "", body)).split())


def question(**members: str) -> dict:
    return {"kind": "authorize", "actor": "User:ann", "action": "read", "resource": "Repo:b", **members}


# ---- asking ------------------------------------------------------------------------------------------------------


def test_the_version_leads_to_its_workbench(admin, version):
    page = admin.get(url("change", version)).content.decode()
    for name in ("ask", "picture", "preview", "review"):
        assert f'href="{url(name, version)}"' in page


def test_an_answer_is_explained_with_links_to_lines_and_facts(admin, version):
    answer = admin.post(url("ask", version), question(version=version.pk))
    said = words(answer)
    assert 'Allowed allow(User:ann, "read", Repo:b) Because' in said
    assert 'has_role(User:ann, "admin", Org:o) stored fact' in said
    assert f'href="{url("change", version)}#L14">line 14</a>' in answer.content.decode()
    link = re.search(r'<a class="tag stored" href="([^"]+)"', answer.content.decode())[1]
    assert "has_relation" in words(admin.get(unescape(link)))


def test_a_denial_shows_what_stood_in_the_way(admin, version):
    said = words(admin.get(url("ask", version), question(actor="User:bob")))
    assert "Denied" in said
    assert "What stood in the way" in said
    assert 'has_role(User:bob, "member", Org:o) no such fact, nor does it follow' in said


def test_context_facts_count(admin, version):
    sent = question(actor="User:bob", context='has_role(User:bob, "member", Org:o)\n')
    assert 'has_role(User:bob, "member", Org:o) context fact' in words(admin.get(url("ask", version), sent))


def test_lists_and_actions_lead_to_the_explanation_of_each_answer(admin, version):
    listed = admin.get(url("ask", version), question(kind="list", resource="Repo"))
    assert "3 answers" in words(listed)
    addresses = [unescape(each) for each in re.findall(r'<a href="([^"]+)">why\?</a>', listed.content.decode())]
    assert len(addresses) == 3
    assert all("Allowed" in words(admin.get(address)) for address in addresses)
    actions = admin.get(url("ask", version), question(kind="actions", actor="User:bob", resource="Repo:a", action=""))
    assert "2 answers" in words(actions)
    (first, _) = [unescape(each) for each in re.findall(r'<a href="([^"]+)">why\?</a>', actions.content.decode())]
    assert 'Allowed allow(User:bob, "read", Repo:a)' in words(admin.get(first))


def test_every_value_is_explained_as_well(admin, version):
    listed = admin.get(url("ask", version), question(kind="list", actor="User:root", resource="Repo"))
    address = unescape(re.search(r'<em>every one</em> <a href="([^"]+)">', listed.content.decode())[1])
    assert 'Allowed allow(User:root, "read", Repo:_)' in words(admin.get(address))


def test_an_earlier_version_and_an_unpublished_text_can_be_asked(admin, version, repos):
    publish(repos, POLICY.replace('"reader" if "member" on "organization";', ""))
    later = PolicyVersion.objects.get(number=2)
    assert "Allowed" in words(admin.get(url("ask", version), question()))
    assert "Denied" in words(admin.get(url("ask", later), question()))
    sent = question(version=later.pk, actor="User:nobody", text=POLICY + 'has_permission(_: User, "read", _: Repo);')
    said = words(admin.post(url("ask", later), sent))
    assert "Allowed" in said
    assert "which is not published" in said
    assert PolicyVersion.objects.count() == 2


def test_an_earlier_moment_can_be_asked(admin, version, repos):
    revision = Environment.objects.get(pk=version.environment_id).offset
    assert repos.post("/clear_data").status_code == 200
    assert "Denied" in words(admin.get(url("ask", version), question()))
    said = words(admin.get(url("ask", version), question(revision=str(revision))))
    assert "Allowed" in said and f"As of revision {revision}, 20" in said
    at = Revision.objects.get(environment=version.environment_id, number=revision + 1).at
    later = f"{time_of(at):%Y-%m-%dT%H:%M:%S.%f}"
    assert "Denied" in words(admin.get(url("ask", version), question(at=later)))
    both = words(admin.get(url("ask", version), question(at=later, revision="1")))
    assert "Name a revision or a time, not both." in both
    assert "is still to come" in words(admin.get(url("ask", version), question(revision="1000")))


def test_the_version_that_is_chosen_is_asked(admin, version, repos):
    publish(repos, POLICY.replace('"reader" if "member" on "organization";', ""))
    later = PolicyVersion.objects.get(number=2)
    assert "Denied" in words(admin.post(url("ask", version), question(version=later.pk)))
    moved = admin.get(url("ask", version), question(version=later.pk))
    assert moved.status_code == 302
    assert moved.url.startswith(url("ask", later))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"actor": "ann"}, "`ann` is not a value; write it as `User:alice`."),
        ({"action": ""}, "Name an action."),
        ({"context": "nonsense("}, "expected an argument"),
        ({"context": "has_rol(User:ann)"}, "`has_rol(User)` is not used in policy (did you mean `has_role`?)."),
        ({"context": "has_rol(User:ann)", "kind": "list", "resource": "Repo"}, "`has_rol(User)` is not used in policy"),
        ({"context": "has_rol(User:ann)", "text": "actor User {}"}, "`has_rol(User)` is not used in policy"),
        ({"text": "actor User"}, "actor User"),
        ({"kind": "guess"}, "Kind"),
        ({"version": "zzz"}, "Version"),
        ({"actor": "User:<b>bold</b>"}, 'User:"<b>bold</b>"'),
        ({"resource": "Nothing:x"}, "The policy has no type `Nothing` (there are `Org`, `Repo`, `User`)."),
    ],
)
def test_mistakes_are_shown_on_the_page(admin, version, changed, message):
    answer = admin.post(url("ask", version), question(**{"version": version.pk, **changed}))
    assert message.lower() in words(answer).lower()
    assert b"<b>bold" not in answer.content


def test_fields_are_completed_from_the_policy_and_the_facts(admin, version):
    page = admin.get(url("ask", version)).content.decode()
    for value in ("User:ann", "Repo:p", "write", "Org"):
        assert f'<option value="{value}">' in page
    found = admin.get(url("ids", version), {"start": "User:a"}).json()
    assert found["actors"] == ["User:ann"]
    assert admin.get(url("ids", version), {"start": "Nothing:"}).json()["resources"] == []


def test_completion_looks_at_a_bounded_number_of_facts(repos, environment):
    store(repos, *(fact("is_public", f"Repo:z{number:04}") for number in range(1000)))
    assert known_ids(environment.pk, ["Repo"], "z09")["Repo"][:2] == ["z0900", "z0901"]
    assert len(known_ids(environment.pk, ["Repo"])["Repo"]) == 50


# ---- who may see ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permissions", "statuses"),
    [
        ((), {"ask": 403, "ids": 403, "preview": 403, "review": 403, "picture": 403}),
        (("view_policyversion",), {"ask": 403, "ids": 403, "preview": 403, "review": 403, "picture": 200}),
        (
            ("view_policyversion", "view_signature"),
            {"ask": 200, "ids": 200, "preview": 200, "review": 200, "picture": 200},
        ),
    ],
)
def test_facts_are_shown_to_those_who_may_see_them(version, permissions, statuses):
    person = User.objects.create_user("bea", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(person)
    assert {name: client.get(url(name, version)).status_code for name in statuses} == statuses


def test_a_version_that_does_not_exist_leads_back(admin, version):
    version.pk += 1000
    for name in ("ask", "preview", "picture", "review"):
        assert admin.get(url(name, version)).status_code == 302


# ---- the picture ---------------------------------------------------------------------------------------------------


def test_the_picture_draws_what_grants_what(admin, version):
    page = admin.get(url("picture", version)).content.decode()
    for text in ("member on organization", "writer", "is_public(resource)", "is_root(user)"):
        assert f">{text}</text>" in page
    assert "<title>line 14: &quot;reader&quot; if &quot;member&quot; on &quot;organization&quot;;</title>" in page
    assert "http" not in re.search(r"<svg.*?</svg>", page, re.DOTALL)[0]


def test_grants_are_read_off_all_forms_of_rules():
    program = rules.compile_text(
        'actor User {}\nglobal { roles = ["boss"]; }\n'
        'resource Folder { roles = ["reader", "writer"]; relations = { parent: Folder, owner: User };\n'
        ' role if role on "parent"; "writer" if "owner"; "reader" if global "boss";\n'
        ' "reader" if ("writer" or is_open(resource)) and not is_shut(resource); "writer" if "reader"; }\n'
        'resource Empty {}\nhas_relation(f: Folder, "owner", u: User) if made(u, f);'
    )
    (folder,) = [sheet for sheet in sheets_of(program) if sheet.type == "Folder"]
    drawn = {(tuple(mark.label for mark in grant.sources), grant.target.label) for grant in folder.grants}
    assert drawn == {
        (("* on parent",), "*"),
        (("owner",), "writer"),
        (("global boss",), "reader"),
        (("writer", "not is_shut(resource)"), "reader"),
        (("is_open(resource)", "not is_shut(resource)"), "reader"),
        (("reader",), "writer"),
    }


def test_rules_that_grant_no_role_or_permission_are_listed(admin, version, repos):
    publish(repos, f'{POLICY}has_relation(r: Repo, "organization", Org{{"o"}}) if is_public(r);')
    latest = PolicyVersion.objects.get(number=2)
    assert 'line 20 has_relation(r: Repo, "organization", Org{"o"})' in words(admin.get(url("picture", latest)))


# ---- what would change ---------------------------------------------------------------------------------------------


def test_what_would_change_is_shown_with_its_explanation(admin, version):
    failing = 'test "t" { assert allow(User{"x"}, "y", Repo{"z"}); }'
    text = POLICY.replace('"read" if is_public(resource);', "") + failing
    said = words(admin.post(url("preview", version), {"text": text}))
    assert "is_public(Repo) 1" in said
    assert "expected true, got false" in said
    assert 'would be denied allow(User:_, "read", Repo:p) Now: allowed' in said
    assert PolicyVersion.objects.count() == 1


def test_questions_can_be_given(admin, version):
    text = POLICY.replace("is_root(user)", "is_root(user) and is_safe(user)")
    sent = {"text": text, "questions": 'allow(User:root, "read", Repo:a)'}
    assert "1 of 1 asked would be different" in words(admin.post(url("preview", version), sent))
    assert "Nothing is compared" in words(admin.post(url("preview", version), {**sent, "questions": "allow("}))
    assert "Nothing is compared" in words(admin.post(url("preview", version), {**sent, "text": "actor"}))


def test_words_that_the_policy_does_not_have_are_reported(admin, version):
    asked = {"kind": "authorize", "actor": "User:ann", "action": "reed", "resource": "Repo:a"}
    said = words(admin.post(url("ask", version), asked))
    assert "The policy has no action `reed` on Repo (did you mean `read`?" in said.replace("&#x27;", "'")
    listed = words(admin.post(url("ask", version), asked | {"kind": "list", "resource": "Rpo"}))
    assert "The policy has no type `Rpo` (did you mean `Repo`?" in listed


# ---- who had access ------------------------------------------------------------------------------------------------


def test_who_gained_and_who_lost_is_listed(admin, version, repos):
    store(repos, fact("has_role", "User:cat", "reader", "Repo:b"))
    said = words(admin.get(url("review", version), {"start": "2"}))
    assert "What changed from revision 2 (" in said and "1 gained, 0 lost." in said
    assert "gained User:cat read Repo:b why?" in said
    page = admin.get(url("review", version), {"start": "2"}).content.decode()
    (address,) = [unescape(each) for each in re.findall(r'<a href="([^"]+)">why\?</a>', page)]
    assert 'Allowed allow(User:cat, "read", Repo:b)' in words(admin.get(address))
    assert "Nobody gained or lost anything." in words(admin.get(url("review", version), {"start": "3"}))
    listed = words(admin.get(url("review", version), {"at": "2", "resource_type": "Repo", "action": "write"}))
    assert "1 in all." in listed and "has User:bob write Repo:a" in listed


def test_a_review_that_is_cut_says_how_to_get_the_whole(admin, version, monkeypatch):
    monkeypatch.setattr("checks.workbench.reviewed.MOST_SHOWN", 1)
    said = words(admin.get(url("review", version), {"at": "2", "resource_type": "Repo"}))
    assert "These are the first 1; there are more." in said
    assert "manage.py review_access --environment default --at 2 --resource-type Repo" in said
    monkeypatch.setattr("checks.workbench.reviewed.SECONDS", -1)
    assert "there may be more" in words(admin.get(url("review", version), {"at": "2"}))


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"start": "", "at": ""}, "Name a moment to compare from, or one to list who had what then."),
        ({"at": "2", "end": "2"}, "A moment to compare up to goes with one to compare from."),
        ({"start": "1000"}, "revision 1000 is still to come"),
        ({"start": "2", "actor_type": "Usr"}, "the policy has no actor type `Usr`"),
    ],
)
def test_moments_that_cannot_be_reviewed_say_why(admin, version, sent, message):
    assert message in words(admin.get(url("review", version), sent))
