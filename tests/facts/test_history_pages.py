"""History in the admin: of an environment, of a revision, of a kind of facts and of one fact."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from facts import history_pages, store
from facts.models import Signature
from facts.store import Deletes, Inserts
from policy.core.journal import By
from policy.models import Environment, PolicyVersion, Revision
from policy.publishing import activate, publish
from tests.facts.test_history import ADMIN, MEMBER, OTHER, delete, exactly, fact, insert

pytestmark = pytest.mark.one_database

HISTORY, REVISION, BROWSE = (
    "/admin/facts/signature/history/", "/admin/facts/signature/revision/", "/admin/facts/signature/",
)  # fmt: skip
POLICY = 'actor User {}\nresource Team {}\nallow(u: User, "x", t: Team) if member(u, t);\n'


@pytest.fixture
def staff(db) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    return client


def person(*permissions: str) -> Client:
    user = User.objects.create_user("ada", password="not used", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def words(page) -> str:
    assert page.status_code == 200, page.status_code
    main = re.search(r'<div id="content-main".*?</main>', page.content.decode(), re.DOTALL)[0]
    return " ".join(re.sub(r"<[^>]*>", " ", main).replace("&quot;", '"').replace("&minus;", "-").split())


def links(page, text: str) -> list[str]:
    found = re.findall(r'<a [^>]*?href="([^"]*)"[^>]*>(.*?)</a>', page.content.decode(), re.DOTALL)
    plain = [(href.replace("&amp;", "&"), re.sub(r"<[^>]*>", "", inner).strip()) for href, inner in found]
    return [href for href, inner in plain if inner == text and href != "/admin/go/history/"]


def follow(client: Client, page, text: str):
    (href,) = dict.fromkeys(links(page, text))
    return client.get(page.request["PATH_INFO"] + href if href.startswith("?") else href)


def test_an_environment_has_a_timeline(staff, environment):
    insert(environment, MEMBER, OTHER, by=By('key 3 "billing"'))
    delete(environment, MEMBER)
    said = words(staff.get(f"{HISTORY}?environment={environment.pk}"))
    assert re.search(r"2 20\S+T\d\d:\d\dZ admin ann Facts -1 1 20\S+T\d\d:\d\dZ key 3 \"billing\" Facts \+2", said)


def test_changes_of_the_policy_lead_to_what_differs(staff, environment):
    first = publish(environment.id, POLICY, None).version
    second = publish(environment.id, POLICY + "\n", None).version
    activate(environment.id, 1)
    page = staff.get(f"{HISTORY}?environment={environment.pk}")
    difference = "/admin/policy/policyversion/{}/difference/?from={}"
    assert links(page, "diff") == [difference.format(first.pk, 2), difference.format(second.pk, 1)]
    assert links(page, "Policy version 2 activated") == [f"/admin/policy/policyversion/{second.pk}/change/"]
    assert staff.get(links(page, "diff")[0]).status_code == 200


def test_policies_lead_back_to_their_revision(staff, environment):
    publish(environment.id, POLICY, None)
    second = publish(environment.id, POLICY + "\n", None)
    activate(environment.id, 1)
    activate(environment.id, 2)
    url = f"/admin/policy/policyversion/{second.version.pk}/change/"
    page = follow(staff, staff.get(url), "History")
    assert page.request["PATH_INFO"] == f"{REVISION}{environment.pk}/{second.offset}/"
    assert follow(staff, page, "Policy version 2 activated").request["PATH_INFO"] == url
    Revision.objects.filter(policy_version=second.version).delete()
    assert "Policy version 1 activated" in words(follow(staff, staff.get(url), "History"))
    assert not links(person("view_policyversion").get(url), "History")


def test_policies_are_linked_for_those_who_may_view_them(environment):
    publish(environment.id, POLICY, None)
    client = person("view_signature")
    page = client.get(f"{HISTORY}?environment={environment.pk}")
    assert "Policy version 1 activated" in words(page) and "/admin/policy/" not in page.content.decode()


def test_a_timeline_has_pages(staff, environment, monkeypatch):
    monkeypatch.setattr(history_pages, "REVISIONS", 2)
    for number in range(5):
        insert(environment, fact("member", f"User:{number}", "Team:t"))
    page, seen = staff.get(f"{HISTORY}?environment={environment.pk}"), []
    while True:
        seen += re.findall(r"<th><a [^>]*>(\d+)</a>", page.content.decode())
        if not links(page, "Next"):
            break
        page = follow(staff, page, "Next")
    assert seen == ["5", "4", "3", "2", "1"]
    assert links(page, "First") == [f"{HISTORY}?environment={environment.pk}"]


def test_a_policy_that_begins_a_page_is_compared_with_that_before(staff, environment, monkeypatch):
    monkeypatch.setattr(history_pages, "REVISIONS", 1)
    publish(environment.id, POLICY, None)
    publish(environment.id, POLICY + "\n", None)
    assert links(staff.get(f"{HISTORY}?environment={environment.pk}"), "diff") != []


def test_a_revision_shows_what_it_inserted_and_deleted(staff, environment):
    insert(environment, MEMBER)
    both = store.apply(environment.id, [Deletes([exactly(MEMBER)]), Inserts([ADMIN, OTHER])], By("admin ann", "r-7"))
    page = staff.get(f"{REVISION}{environment.pk}/{both.offset}/")
    said = words(page)
    assert '+ has_role(User:ann, "admin", Repo:a)' in said and "- member(User:ann, Team:t)" in said
    assert "Author admin ann" in said and "Request ID r-7" in said
    assert words(follow(staff, page, "Earlier")).startswith("Later Environment")


def test_a_revision_has_pages(staff, environment, monkeypatch):
    monkeypatch.setattr(history_pages, "FACTS", 3)
    number = insert(environment, *[fact("member", f"User:u{each}", "Team:t") for each in range(8)])
    page, seen = staff.get(f"{REVISION}{environment.pk}/{number}/"), []
    while True:
        seen += re.findall(r"User:(u\d)\b", page.content.decode())
        if not links(page, "Next"):
            break
        page = follow(staff, page, "Next")
    assert seen == [f"u{each}" for each in range(8)]


def test_from_a_stored_fact_to_its_history_and_on(staff, environment):
    first = insert(environment, MEMBER)
    insert(environment, OTHER)
    last = delete(environment, MEMBER)
    insert(environment, MEMBER, by=By("command load_facts"))
    browse = staff.get(f"{BROWSE}?id=ann")
    page = follow(staff, browse, "history")
    said = words(page)
    assert "member(User:ann, Team:t)" in said and "bob" not in said
    assert "Stored, since 20" in said and "by command load_facts (revision 4)" in said
    assert [links(page, str(number)) for number in (first, last)] == [
        [f"{REVISION}{environment.pk}/{number}/"] for number in (first, last)
    ]
    revision = follow(staff, page, str(last))
    assert words(follow(staff, revision, "&minus; member(User:ann, Team:t)")) == said
    kind = follow(staff, page, "History of member")
    assert "bob" in words(kind) and "member(User, Team)" in words(kind)
    assert "ann" in follow(staff, kind, "Stored facts").content.decode()


def test_a_fact_that_was_there_says_until_when(staff, environment):
    insert(environment, MEMBER)
    number = delete(environment, MEMBER)
    kind = Signature.objects.get(environment=environment)
    said = words(staff.get(f"{HISTORY}?signature={kind.pk}&id=ann&id=t"))
    assert f"Not stored: stored until revision {number}, " in said and "deleted by admin ann." in said
    never = words(staff.get(f"{HISTORY}?signature={kind.pk}&id=zoe&id=t"))
    assert "Not stored, and not in the history." in never and "No changes." in never


def test_facts_of_a_kind_have_pages(staff, environment, monkeypatch):
    monkeypatch.setattr(history_pages, "FACTS", 2)
    insert(environment, *[fact("member", f"User:u{each}", "Team:t") for each in range(5)])
    kind = Signature.objects.get(environment=environment)
    page = staff.get(f"{HISTORY}?signature={kind.pk}")
    page = follow(staff, follow(staff, page, "Next"), "Next")
    assert "u4" in words(page) and links(page, "First") == [f"{HISTORY}?signature={kind.pk}"]


def test_all_that_is_shown_is_text(staff, environment):
    hostile = fact("<i>p</i>", "<b>T</b>:<script>alert(1)</script>")
    number = insert(environment, hostile, by=By('key 3 "<img src=x>"', "<u>"))
    kind = Signature.objects.get(environment=environment)
    for page in (
        f"{HISTORY}?environment={environment.pk}",
        f"{HISTORY}?signature={kind.pk}",
        f"{HISTORY}?signature={kind.pk}&id=<script>alert(1)</script>",
        f"{REVISION}{environment.pk}/{number}/",
        BROWSE,
    ):
        text = staff.get(page).content.decode()
        assert not re.search(r"<(i>p|b>T|script>alert|img src=x|u>)", text), page


def test_what_is_before_the_horizon_is_said_not_to_be_known(staff, environment):
    first = insert(environment, MEMBER)
    second = delete(environment, MEMBER)
    Environment.objects.filter(pk=environment.pk).update(horizon=second)
    assert "History before revision 2 is not available" in words(staff.get(f"{REVISION}{environment.pk}/{first}/"))


@pytest.mark.parametrize(
    ("address", "status"),
    [
        (f"{HISTORY}?signature=999999999", 404),
        (f"{HISTORY}?signature=x", 404),
        (f"{HISTORY}?signature=99999999999999999999", 404),
        (f"{HISTORY}?environment=999999999", 200),
        (f"{HISTORY}?before=x&after=x", 200),
        (f"{HISTORY}?before=999999999999999999", 200),
        (f"{REVISION}1/99999999999999999999999/", 404),
        (f"{REVISION}99999999999999999999999/1/", 404),
    ],
)
def test_what_does_not_exist(staff, environment, address, status):
    assert staff.get(address).status_code == status


def test_addresses_that_are_made_up(staff, environment):
    number = insert(environment, MEMBER)
    kind = Signature.objects.get(environment=environment)
    for query in ("id=ann", "id=ann&id=t&id=x", "id=a%00&id=t"):
        assert staff.get(f"{HISTORY}?signature={kind.pk}&{query}").status_code == 404
    assert "member" in words(staff.get(f"{REVISION}{environment.pk}/{number}/?after=tampered"))


@pytest.mark.parametrize(
    ("permission", "status"), [("view_signature", 200), ("change_signature", 200), ("view_policyversion", 403)]
)
def test_who_may_view_facts_may_view_their_history(environment, permission, status):
    number = insert(environment, MEMBER)
    kind = Signature.objects.get(environment=environment)
    client = person(permission)
    for page in (HISTORY, f"{HISTORY}?signature={kind.pk}", f"{REVISION}{environment.pk}/{number}/"):
        assert client.get(page).status_code == status
    assert Client().get(HISTORY).status_code == 302


def test_environments_lead_to_their_history(staff, environment):
    assert links(staff.get("/admin/policy/environment/"), "history") == [f"{HISTORY}?environment={environment.pk}"]
    assert f"{HISTORY}" not in person("view_environment").get("/admin/policy/environment/").content.decode()


def test_every_kind_of_revision_has_a_name(staff, environment):
    Revision.objects.bulk_create(
        Revision(environment=environment, number=number, at=0, author="", kind=kind, inserted=0, deleted=0)
        for number, kind in enumerate(history_pages.DONE, 1)
    )
    said = words(staff.get(f"{HISTORY}?environment={environment.pk}"))
    assert all(text in said for text in history_pages.DONE.values())
    assert PolicyVersion.objects.count() == 0
