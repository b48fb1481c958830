"""Facts in the admin."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from facts import admin, read, store
from facts.models import Signature
from facts.store import Inserts
from facts.wire import Fact
from policy.clock import short_text_of
from policy.values import Value

PAGE = "/admin/facts/signature/"


def fact(predicate: str, *args: str) -> Fact:
    return Fact(predicate, tuple(Value(*arg.split(":", 1)) for arg in args))


@pytest.fixture
def staff(db) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    return client


@pytest.fixture
def filled(environment):
    facts = [fact("member", f"User:u{n}", "Team:t") for n in range(250)]
    facts += [fact("has_role", "User:u7", "String:admin", "Repo:<b>r</b>"), fact("is_public", "Repo:u7")]
    store.apply(environment.id, [Inserts(facts)])
    return environment


def rows(page) -> int:
    return page.content.decode().count('name="selected"')


def test_pages_follow_each_other_and_show_every_fact_once(staff, filled):
    seen, query = [], ""
    while query is not None:
        text = staff.get(PAGE + query).content.decode()
        seen += re.findall(r"User{&quot;(u\d+)&quot;}, Team", text)
        found = re.search(r'href="([^"]*)">next page', text)
        query = found[1].replace("&amp;", "&") if found else None
    assert sorted(seen) == sorted(f"u{n}" for n in range(250))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?predicate=has_role", 1),
        ("?type=Repo", 2),
        ("?id=u7", 3),
        ("?id=u7&type=User", 2),
        ("?id=u7&predicate=is_public", 1),
        ("?id=u", 0),
        ("?after=tampered&predicate=has_role", 1),
        ("?predicate=unheard", 0),
        ("?environment=999999999", 0),
    ],
)
def test_facts_are_narrowed_and_searched(staff, filled, query, found):
    assert rows(staff.get(PAGE + query)) == found


def test_ids_are_shown_as_text(staff, filled):
    text = staff.get(f"{PAGE}?predicate=has_role").content.decode()
    assert "<b>r</b>" not in text and "&lt;b&gt;r&lt;/b&gt;" in text


def test_a_search_that_is_cut_short_says_so(staff, environment):
    store.apply(environment.id, [Inserts([fact("member", f"User:{n}", "Team:t") for n in range(101)])])
    assert "narrow the search" in staff.get(f"{PAGE}?id=t").content.decode()


def summary(page) -> str:
    return re.search(r'role="status">([^<]*)<', page.content.decode())[1].strip()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "252 facts of these kinds."),
        ("?predicate=has_role", "1 fact of these kinds."),
        ("?id=u7", "3 facts have an argument with this id."),
        ("?id=u7&type=User", "2 facts have an argument of User with this id."),
        ("?id=nobody", "No fact of these kinds has an argument with the id “nobody”."),
        ("?id=nobody&type=Team", "No fact of these kinds has an argument of Team with the id “nobody”."),
    ],
)
def test_what_is_counted_is_what_is_shown(staff, filled, query, said):
    assert summary(staff.get(PAGE + query)).startswith(said)


def test_a_large_count_is_not_told_of_a_search_that_finds_nothing(staff, filled, monkeypatch):
    monkeypatch.setattr(admin, "COUNTED", 100)
    assert summary(staff.get(PAGE)) == "More than 100 facts of these kinds."
    assert "More than" not in staff.get(f"{PAGE}?id=nobody").content.decode()


def test_what_cannot_be_narrowed_to_is_told(staff, filled):
    page = staff.get(f"{PAGE}?predicate=unheard")
    assert "unheard is not one of the available choices" in page.content.decode()
    assert summary(page) == "Nothing is shown: what is chosen above does not exist."


def test_a_stored_fact_is_named_as_it_is_written(staff, environment):
    sent = {"environment": environment.id, "fact": 'has_role(User:ann, "admin", Repo:a)'}
    said = staff.post(f"{PAGE}add/", sent, follow=True).content.decode()
    assert "Stored: has_role(User{&quot;ann&quot;}" in said and "Has_role" not in said


def test_facts_are_added_as_the_api_adds_them(staff, environment):
    sent = {"environment": environment.id, "fact": 'has_role(User:ann, "admin", Repo:"a b")'}
    assert staff.post(f"{PAGE}add/", sent).status_code == 302
    assert [str(each) for each in read.find(environment.id, None, ())] == [
        'has_role(User{"ann"}, "admin", Repo{"a b"})'
    ]
    for wrong in ("has_role(User:ann", "p(_)", "p(T:*)", ""):
        answer = staff.post(f"{PAGE}add/", sent | {"fact": wrong})
        assert (answer.status_code, "errorlist" in answer.content.decode()) == (200, True)


def test_facts_may_be_added_until_a_time_and_show_it(staff, environment):
    sent = {"environment": environment.id, "fact": "member(User:ann, Team:t)"}
    said = staff.post(f"{PAGE}add/", sent | {"ends": "2096-12-01T00:30"}, follow=True).content.decode()
    assert "Stored: member(User{&quot;ann&quot;}, Team{&quot;t&quot;}) until 2096-12-01 00:30" in said
    assert "until 2096-12-01 00:30</span>" in said
    (found,) = read.find(environment.id, None, ())
    assert short_text_of(found.expires_at) == "2096-12-01T00:30:00Z"
    for page in (PAGE, f"{PAGE}?id=ann"):
        assert "until 2096-12-01 00:30" in staff.get(page).content.decode()
    said = staff.post(f"{PAGE}add/", sent, follow=True).content.decode()
    assert "until" not in said and read.find(environment.id, None, ())[0].expires_at is None


def test_facts_that_end_are_deleted_like_others(staff, environment):
    sent = {"environment": environment.id, "fact": "member(User:ann, Team:t)", "ends": "2096-12-01T00:30:05"}
    staff.post(f"{PAGE}add/", sent)
    tokens = re.findall(r'name="selected" value="([^"]+)"', staff.get(PAGE).content.decode())
    staff.post(PAGE, {"selected": tokens})
    assert read.find(environment.id, None, ()) == []


@pytest.mark.parametrize(
    ("ends", "said"), [("2001-01-01T00:00", "is in the past: it is 2"), ("tomorrow", "Enter a valid date/time")]
)
def test_an_end_that_is_none_is_told_at_its_field(staff, environment, ends, said):
    sent = {"environment": environment.id, "fact": "member(User:ann, Team:t)", "ends": ends}
    page = staff.post(f"{PAGE}add/", sent)
    assert page.status_code == 200
    errors = page.context_data["form"].errors
    assert list(errors) == ["ends"] and errors["ends"][0].startswith(said)
    assert read.find(environment.id, None, ()) == []


def test_selected_facts_are_deleted(staff, filled):
    text = staff.get(f"{PAGE}?id=u7").content.decode()
    tokens = re.findall(r'name="selected" value="([^"]+)"', text)
    assert len(tokens) == 3
    staff.post(f"{PAGE}?id=u7", {"selected": [*tokens[:2], "tampered"]})
    assert rows(staff.get(f"{PAGE}?id=u7")) == 1
    assert read.stats(filled.id).facts == 250


def test_permissions_are_asked(filled):
    viewer = User.objects.create_user("viewer", is_staff=True)
    client = Client()
    client.force_login(viewer)
    assert client.get(PAGE).status_code == 403
    viewer.user_permissions.add(Permission.objects.get(codename="view_signature"))
    assert client.get(PAGE).status_code == 200
    assert client.post(PAGE, {"selected": []}).status_code == 403
    assert client.get(f"{PAGE}add/").status_code == 403


def test_counting_stops_where_it_would_take_long(filled):
    numbers = [each.id for each in Signature.objects.all()]
    assert read.count_up_to(101, numbers) == 101
