"""What stands around the pages of the admin, and the page that one comes to first."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from authz_project.keys import create_key
from facts import store
from facts.store import Inserts
from facts.wire import Fact, fact_from_text
from policy import publishing
from policy.models import Environment, default_environment
from policy.values import Value

pytestmark = pytest.mark.one_database

POLICY = 'actor User {}\nresource Repo { permissions = ["read"]; roles = ["owner"]; "read" if "owner"; }\n'


@pytest.fixture
def staff(db) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    return client


def publish(environment, text=POLICY):
    return publishing.publish(environment.pk, text, None).version


def add(environment, *facts):
    store.apply(environment.pk, [Inserts([fact_from_text(each) for each in facts], None)])


def someone(*permissions) -> Client:
    client = Client()
    person = User.objects.create_user("ann", password="x", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(person)
    return client


def places(page) -> list[str]:
    text = page.content.decode()
    return [
        part.split(">")[1].split("<")[0]
        for part in text.partition('id="places"')[2].partition("</nav>")[0].split("<a")[1:]
    ]


def test_every_page_leads_to_all_places(staff):
    told = ["Home", "Policy", "Facts", "Check", "Diagram", "Preview impact", "History", "API keys"]
    for address in ("/admin/", "/admin/go/facts/", "/admin/authz_project/apikey/"):
        assert places(staff.get(address, follow=True)) == told


def test_only_places_where_one_may_go_are_shown(db):
    page = someone("view_signature").get("/admin/")
    assert places(page) == ["Home", "Facts", "History"]
    assert b"Policy</span>" not in page.content


@pytest.mark.parametrize("name", ["policy", "ask", "picture", "preview", "review", "editor", "versions", "keys"])
def test_who_may_not_go_somewhere_is_not_led_there(db, name):
    assert someone("view_signature").get(f"/admin/go/{name}/").status_code == 403


def test_who_is_not_logged_in_is_led_to_the_login(db):
    assert Client().get("/admin/go/ask/")["Location"].startswith("/admin/login/")


def test_there_is_no_other_place(staff):
    assert staff.get("/admin/go/nowhere/").status_code == 404


@pytest.mark.parametrize(
    "name, page", [("policy", "change"), ("ask", "ask"), ("picture", "picture"), ("preview", "preview")]
)
def test_a_place_of_the_policy_is_that_of_the_active_version(staff, environment, name, page):
    publish(environment, POLICY.replace("owner", "boss"))
    version = publish(environment)
    assert staff.get(f"/admin/go/{name}/")["Location"] == f"/admin/policy/policyversion/{version.pk}/{page}/"


def test_a_question_is_kept_on_the_way(staff, environment):
    version = publish(environment)
    answer = staff.get("/admin/go/ask/", {"environment": "default", "kind": "authorize", "actor": "User:ö&x", "at": ""})
    assert answer["Location"] == f"/admin/policy/policyversion/{version.pk}/ask/?kind=authorize&actor=User:%C3%B6%26x"


def test_without_a_policy_one_is_told_so(staff, environment):
    page = staff.get("/admin/go/ask/", follow=True)
    assert "Environment “default” has no active policy" in page.content.decode()


def test_the_environment_is_remembered(staff, environment):
    other = Environment.objects.create(slug="staging", name="Staging")
    version = publish(other)
    assert "staging" in staff.get("/admin/").content.decode()
    staff.get("/admin/?environment=staging")
    assert staff.get("/admin/go/ask/")["Location"] == f"/admin/policy/policyversion/{version.pk}/ask/"
    assert 'aria-current="true">staging' in staff.get("/admin/go/facts/", follow=True).content.decode()


def test_looking_makes_no_environment(staff):
    before = Environment.objects.count()
    staff.get("/admin/policy/environment/")
    assert Environment.objects.count() == before


def test_home_says_what_is_well_and_what_is_not(staff, environment):
    add(environment, "has_role(User:ann, owner, Repo:anvil)", "likes(User:ann, Cake:plum)")
    publish(environment)
    page = staff.get("/admin/").content.decode()
    assert "version 1" in page
    assert "1 fact the policy doesn&#x27;t use" in page
    assert "The policy has no tests" in page  # tests
    publish(
        environment,
        POLICY + 'test "t" { setup { has_role(User{"a"}, "owner", Repo{"r"}); } '
        'assert allow(User{"a"}, "read", Repo{"r"}); }',
    )
    assert "1 passed" in staff.get("/admin/").content.decode()
    assert "has_role(User, String, Repo)" in page
    assert "Policy version 1 activated" in page


def test_home_says_how_many_questions_there_were_where_metrics_are_on(staff, environment, monkeypatch):
    assert "in the last minute" not in staff.get("/admin/").content.decode()
    monkeypatch.setattr("authz_project.console.decisions_last_minute", lambda: 1234)
    assert "1,234 in the last minute" in staff.get("/admin/").content.decode()


def test_home_shows_first_steps_until_there_is_something(staff, environment):
    assert "Or start from scratch" in staff.get("/admin/").content.decode()
    publish(environment)
    page = staff.get("/admin/").content.decode()
    assert "Add facts" in page
    assert "Write a policy" not in page
    add(environment, "has_role(User:ann, owner, Repo:anvil)")
    page = staff.get("/admin/").content.decode()
    assert "First steps" not in page
    assert 'value="User:ann"' in page  # to ask about


def test_an_example_is_loaded_and_its_questions_are_worth_trying(staff, environment):
    assert "code/" in staff.get("/admin/").content.decode()
    page = staff.post("/admin/examples/code/", follow=True).content.decode()
    assert "Loaded: " in page
    assert "Try these" in page
    assert "kind=authorize" in page


def test_an_example_does_not_get_in_the_way_of_what_is_there(staff, environment):
    version = publish(environment)
    assert "has a policy, version 1" in staff.post("/admin/examples/code/", follow=True).content.decode()
    environment.refresh_from_db()
    assert environment.policy_version_id == version.pk


def test_looking_at_the_address_of_an_example_loads_nothing(staff, environment):
    staff.get("/admin/examples/code/")
    environment.refresh_from_db()
    assert environment.policy_version_id is None
    assert staff.post("/admin/examples/nothing/").status_code == 404


def test_who_may_not_publish_loads_no_example(environment):
    assert someone("view_signature", "add_signature").post("/admin/examples/code/").status_code == 403


def test_browsers_that_ask_for_an_icon_find_one(db):
    assert Client().get("/favicon.ico")["Location"] == "/static/authz_project/icon.svg"


@pytest.mark.parametrize("address", ["/admin/", "/admin/go/ask/", "/admin/policy/policyversion/add/"])
def test_a_name_that_no_environment_can_have_is_none(staff, environment, address):
    assert staff.get(address, {"environment": "\0"}).status_code < 400


def test_an_example_is_loaded_into_the_environment_that_is_named_or_none(staff, environment):
    assert staff.post("/admin/examples/code/?environment=gone").status_code == 404


def test_what_facts_are_is_told_to_who_may_see_them(environment):
    add(environment, "likes(User:ann, Cake:plum)")
    publish(environment)
    assert b"no use for" not in someone("view_policyversion").get("/admin/").content


def test_a_kind_of_facts_leads_to_its_facts_whatever_its_name(staff, environment):
    fact = Fact("likes & more#1", (Value("User", "ann"),))
    store.apply(environment.pk, [Inserts([fact], None)])
    (address,) = re.findall(r'href="([^"]*)"><code>likes', staff.get("/admin/").content.decode())
    assert "ann" in staff.get(unescape(address)).content.decode()


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/admin/nothing/", 404, ("Page not found", "There is no page at this address.")),
        ("/admin/authz_project/apikey/{}/delete/", 403, ("Not allowed", "Ask an administrator of the service.")),
    ],
)
def test_errors_have_a_page_of_the_admin_that_says_what_to_do(staff, path, status, told):
    key, _ = create_key(default_environment(), "billing")
    answer = staff.get(path.format(key.pk), headers={"Accept": "text/html"})
    page = answer.content.decode()
    assert answer.status_code == status and "authz_project/colours.css" in page
    assert all(each in page for each in told)


def test_lists_of_the_admin_have_times_and_revisions_as_everywhere(staff):
    create_key(default_environment(), "billing")
    for path in ("/admin/policy/environment/", "/admin/authz_project/apikey/"):
        assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", staff.get(path).content.decode())
    titles = {path: staff.get(f"/admin/{path}/").context["title"] for path in ("policy/environment", "auth/user")}
    assert titles == {"policy/environment": "Environments", "auth/user": "Users"}


@pytest.mark.parametrize("app", ["policy", "facts", "auth", "authz_project"])
def test_pages_of_apps_lead_home(staff, app):
    assert staff.get(f"/admin/{app}/")["Location"] == "/admin/"
    assert Client().get(f"/admin/{app}/")["Location"].startswith("/admin/login/")
