"""Facts in the admin."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from facts import keyset_pages, read, store, table
from facts.models import Signature
from facts.store import Inserts
from facts.wire import Fact
from policy.core.clock import short_text_of
from policy.values import Value

pytestmark = pytest.mark.one_database

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
    seen, query = [], "?predicate=member"
    while query is not None:
        text = staff.get(PAGE + query).content.decode()
        seen += re.findall(r'title="User:(u\d+)"', text)
        found = re.search(r'href="([^"]*)" rel="next"', text)
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


def summary(page) -> str:
    return re.search(r'role="status">([^<]*)<', page.content.decode())[1].strip()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "252 facts."),
        ("?predicate=has_role", "1 fact."),
        ("?id=u7", "3 facts have an argument whose id is “u7”."),
        ("?id=u7&type=User", "2 facts have an argument of type User whose id is “u7”."),
        ("?id=u7&type=User&match=begins", "12 facts have an argument of type User whose id starts with “u7”."),
        ("?id=nobody", "No fact has an argument whose id is “nobody”."),
        ("?id=nobody&type=Team", "No fact has an argument of type Team whose id is “nobody”."),
    ],
)
def test_what_is_counted_is_what_is_shown(staff, filled, query, said):
    assert summary(staff.get(PAGE + query)).startswith(said)


def test_a_large_count_is_told_as_such(staff, filled, db, monkeypatch):
    monkeypatch.setitem(keyset_pages.MOST, db, 100)
    assert re.fullmatch(r"(more than|about) [\d,]+ facts\.", summary(staff.get(PAGE)))
    assert "than" not in summary(staff.get(f"{PAGE}?id=nobody"))


def test_what_cannot_be_narrowed_to_is_told(staff, filled):
    page = staff.get(f"{PAGE}?predicate=unheard")
    assert "unheard is not one of the available choices" in page.content.decode()
    assert summary(page) == "The filters do not match an existing environment, predicate or type."


def test_a_stored_fact_is_named_as_it_is_written(staff, environment):
    sent = {"environment": environment.id, "fact": 'has_role(User:ann, "admin", Repo:a)'}
    said = staff.post(f"{PAGE}add/", sent, follow=True).content.decode()
    assert "Stored: has_role(User:ann" in said and "Has_role" not in said


def test_facts_are_added_as_the_api_adds_them(staff, environment):
    sent = {"environment": environment.id, "fact": 'has_role(User:ann, "admin", Repo:"a b")'}
    assert staff.post(f"{PAGE}add/", sent).status_code == 302
    assert [str(each) for each in read.found(environment.id, None, ()).facts] == [
        'has_role(User{"ann"}, "admin", Repo{"a b"})'
    ]
    for wrong in ("has_role(User:ann", "p(_)", "p(T:*)", ""):
        answer = staff.post(f"{PAGE}add/", sent | {"fact": wrong})
        assert (answer.status_code, "errorlist" in answer.content.decode()) == (200, True)
    assert "<code>Type:id</code>" in staff.post(f"{PAGE}add/", sent | {"fact": "p(_)"}).content.decode()


def test_facts_may_be_added_until_a_time_and_show_it(staff, environment):
    sent = {"environment": environment.id, "fact": "member(User:ann, Team:t)"}
    said = staff.post(f"{PAGE}add/", sent | {"ends": "2096-12-01T00:30"}, follow=True).content.decode()
    assert "Stored: member(User:ann, Team:t) until 2096-12-01T00:30Z" in said
    assert "until 2096-12-01T00:30Z</span>" in said
    (found,) = read.found(environment.id, None, ()).facts
    assert short_text_of(found.expires_at) == "2096-12-01T00:30:00Z"
    for page in (PAGE, f"{PAGE}?id=ann"):
        assert "until 2096-12-01T00:30Z" in staff.get(page).content.decode()
    said = staff.post(f"{PAGE}add/", sent, follow=True).content.decode()
    assert "until" not in said and read.found(environment.id, None, ()).facts[0].expires_at is None


def test_facts_that_end_are_deleted_like_others(staff, environment):
    sent = {"environment": environment.id, "fact": "member(User:ann, Team:t)", "ends": "2096-12-01T00:30:05"}
    staff.post(f"{PAGE}add/", sent)
    tokens = re.findall(r'name="selected" value="([^"]+)"', staff.get(PAGE).content.decode())
    delete(staff, tokens)
    assert read.found(environment.id, None, ()).facts == []


@pytest.mark.parametrize(
    ("ends", "said"),
    [("2001-01-01T00:00", "is in the past: the current time is 2"), ("tomorrow", "Enter a valid date/time")],
)
def test_an_end_that_is_none_is_told_at_its_field(staff, environment, ends, said):
    sent = {"environment": environment.id, "fact": "member(User:ann, Team:t)", "ends": ends}
    page = staff.post(f"{PAGE}add/", sent)
    assert page.status_code == 200
    errors = page.context_data["form"].errors
    assert list(errors) == ["ends"] and errors["ends"][0].startswith(said)
    assert read.found(environment.id, None, ()).facts == []


def delete(client: Client, tokens: list[str], query: str = ""):
    """Select facts, and say yes to what the page then asks."""
    asked = client.post(f"{PAGE}delete/", {"selected": tokens, "back": query}).content.decode()
    sent = re.findall(r'name="fact" value="([^"]+)"', asked)
    return client.post(f"{PAGE}delete/", {"fact": sent, "confirmed": "yes", "back": query}, follow=True)


def test_selected_facts_are_deleted(staff, filled):
    text = staff.get(f"{PAGE}?id=u7").content.decode()
    tokens = re.findall(r'name="selected" value="([^"]+)"', text)
    assert len(tokens) == 3
    page = delete(staff, [*tokens[:2], "tampered"], "id=u7")
    assert "2 facts deleted." in page.content.decode() and rows(page) == 1
    assert read.stats(filled.id)["num_facts"] == 250


def test_permissions_are_asked(filled):
    viewer = User.objects.create_user("viewer", is_staff=True)
    client = Client()
    client.force_login(viewer)
    value = "/admin/facts/value/?environment=default&type=User&id=u1"
    pages = (PAGE, f"{PAGE}ids/", f"{PAGE}export/?format=json", value, value.replace("value/", "value/history/"))
    for page in pages:
        assert client.get(page).status_code == 403
    viewer.user_permissions.add(Permission.objects.get(codename="view_signature"))
    for page in pages:
        assert client.get(page).status_code == 200
    for page in ("add/", "import/"):
        assert [client.get(PAGE + page).status_code, client.post(PAGE + page).status_code] == [403, 403]
    assert client.post(f"{PAGE}delete/", {"selected": []}).status_code == 403
    text = client.get(PAGE).content.decode()
    assert 'name="selected"' not in text and "import/" not in text


def test_pages_that_change_something_want_the_token(filled):
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    for page in ("add/", "import/", "delete/"):
        assert client.post(PAGE + page, {"confirmed": "yes"}).status_code == 403


def test_counting_stops_where_it_would_take_long(filled):
    numbers = [each.id for each in Signature.objects.all()]
    assert table.count_up_to(101, numbers) == 101
