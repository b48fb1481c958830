"""The workbench's pages: asking, explaining, drawing and comparing in the admin."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from checks.compare import preview
from checks.picture.graph import sheets_of
from policy import rules
from policy.models import PolicyVersion
from tests.checks.conftest import POLICY, fact, publish, store, url

pytestmark = pytest.mark.one_database


def words(answer) -> str:
    """The page's text on one line, without its tags."""
    assert answer.status_code == 200, answer.status_code
    body = answer.content.decode().partition('<div id="content"')[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", "", body)).split())


# ---- from the version --------------------------------------------------------------------------------------------


def test_the_version_leads_to_its_workbench(admin, version):
    page = admin.get(url("change", version)).content.decode()
    for name in ("ask", "picture", "preview", "review"):
        assert f'href="{url(name, version)}"' in page


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
    assert 'newly denied allow(User:_, "read", Repo:p) Before: allowed' in said
    assert PolicyVersion.objects.count() == 1


def test_answers_that_differ_are_sorted_and_the_rest_told_apart(admin, version, monkeypatch):
    monkeypatch.setattr(preview, "_FIRST_FLIPS", 1)
    text = POLICY.replace('"read" if is_public(resource);', '"write" if is_public(resource); "write" if "reader";')
    page = admin.post(url("preview", version), {"text": text})
    said = words(page)
    allowed, denied = said.index("Newly allowed"), said.index("Newly denied")
    assert allowed < said.index("newly allowed allow(") < denied < said.index("newly denied allow(")
    assert page.content.decode().count('<details class="rest">') == 1
    rows = re.findall(r'<td class="count( quiet)?">([^<]+)</td>', page.content.decode())
    assert rows and all(bool(quiet) == (number == "0") for quiet, number in rows)
    same = POLICY + 'has_permission(_: User, "write", repo: Repo) if is_frozen(repo);'
    assert "without changes" in words(admin.post(url("preview", version), {"text": same}))


def test_questions_can_be_given(admin, version):
    text = POLICY.replace("is_root(user)", "is_root(user) and is_safe(user)")
    sent = {"text": text, "questions": 'allow(User:root, "read", Repo:a)'}
    assert "1 of 1 check would change" in words(admin.post(url("preview", version), sent))
    assert "Not compared" in words(admin.post(url("preview", version), {**sent, "questions": "allow("}))
    assert "Not compared" in words(admin.post(url("preview", version), {**sent, "text": "actor"}))


# ---- who had access ------------------------------------------------------------------------------------------------


def test_who_gained_and_who_lost_is_listed(admin, version, repos):
    store(repos, fact("has_role", "User:cat", "reader", "Repo:b"))
    said = words(admin.get(url("review", version), {"start": "2"}))
    assert "Access changes from revision 2 (" in said and "1 gained, 0 lost" in said
    assert "gained User:cat read Repo:b Explain" in said
    page = admin.get(url("review", version), {"start": "2"}).content.decode()
    for label, verdict in (("before", "Denied"), ("now", "Allowed")):
        (address,) = [unescape(each) for each in re.findall(rf'<a href="([^"]+)">{label}</a>', page)]
        assert f'{verdict} allow(User:cat, "read", Repo:b)' in words(admin.get(address))
    assert "No access gained or lost" in words(admin.get(url("review", version), {"start": "3"}))
    listed = words(admin.get(url("review", version), {"at": "2", "resource_type": "Repo", "action": "write"}))
    assert "1 result" in listed and "has User:bob write Repo:a" in listed


def test_a_review_has_pages_and_a_filter(admin, version, repos, monkeypatch):
    monkeypatch.setattr("checks.compare.review_walk.PAGE", 3)
    seen, address = [], f"{url('review', version)}?at=2&resource_type=Repo"
    while address:
        page = admin.get(address)
        assert f"{len(seen) + 1} to " in words(page)
        seen += re.findall(r"has (\S+ \S+ \S+) Explain", words(page))
        found = re.search(r'<a href="([^"]+)" rel="next">', page.content.decode())
        address = unescape(found[1]) if found else ""
    assert len(seen) == len(set(seen)) == 8
    filtered = words(admin.get(url("review", version), {"at": "2", "resource_type": "Repo", "filter": "bob"}))
    assert "3 results" in filtered and "has User:bob write Repo:a" in filtered and "has User:ann" not in filtered
    assert "has User:bob read Repo:p" in filtered  # which everybody may
    assert "No results contain" in words(admin.get(url("review", version), {"at": "2", "filter": "zzz"}))
    assert "8 results" in words(page) and "7 to 8 of 8" in words(page)
    (first,) = re.findall(r'<a href="([^"]+)">First</a>', page.content.decode())
    assert "1 to 3" in words(admin.get(unescape(first)))
    beyond = words(admin.get(url("review", version), {"at": "2", "after": '["Repo",1]'}))
    assert "is not a valid cursor" in beyond


def test_a_review_that_has_not_looked_at_everything_says_so_and_goes_on(admin, version, repos, monkeypatch):
    """Nothing is cut short: whoever goes on sees all, and where it was looked up to."""
    asked = {"at": "2", "resource_type": "Repo"}
    whole = words(admin.get(url("review", version), asked))
    monkeypatch.setattr("checks.compare.review_walk.SECONDS", -1)
    page, pages, seen = admin.get(url("review", version), asked), 1, []
    assert "authz review_access --at=2 --resource-type=Repo" in words(page)
    while "Evaluated so far:" in words(page):
        assert "in all" not in words(page)
        seen += re.findall(r"has (\S+ \S+ \S+) Explain", words(page))
        (address,) = re.findall(r'<a href="([^"]+)">Continue</a>', page.content.decode())
        page, pages = admin.get(unescape(address)), pages + 1
    seen += re.findall(r"has (\S+ \S+ \S+) Explain", words(page))
    assert sorted(seen) == sorted(re.findall(r"has (\S+ \S+ \S+) Explain", whole))
    assert pages > 3 and "8 results" in words(page)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"start": "", "at": ""}, "Enter either “From” to compare, or “As of” to list access at one time."),
        ({"at": "2", "end": "2"}, "“To” requires “From”, not “As of”."),
        ({"start": "1000"}, "revision 1000 does not exist yet"),
        ({"start": "9999-12-31T23:59:59-14:00"}, "a time within the years 1 to 9999"),
        ({"start": "2", "actor_type": "Usr"}, "the policy has no type Usr (did you mean User?"),
        ({"start": "2", "action": "raed"}, "the policy has no action raed"),
    ],
)
def test_moments_that_cannot_be_reviewed_say_why(admin, version, sent, message):
    assert message in words(admin.get(url("review", version), sent))
