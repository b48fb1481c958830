"""Keys and environments in the admin."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from authz_project.admin import EnvironmentAdmin
from authz_project.models import ApiKey
from facts import read, store
from facts.store import Inserts
from facts.table import fetch, select
from facts.wire import Fact
from policy.active import Scope
from policy.models import Environment
from policy.values import Value
from tests.conftest import Api
from tests.factories import PolicyVersionFactory

pytestmark = pytest.mark.one_database


@pytest.fixture
def staff(db) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    return client


ALL_SCOPES = {"may_read": "on", "may_change_facts": "on", "may_change_policy": "on", "may_follow": "on"}


def token_made(staff: Client, environment: Environment, **said: str) -> str:
    page = staff.post("/admin/authz_project/apikey/add/", {"environment": environment.id, **said}).content.decode()
    return re.search(r'id="token"[^>]*>(e_\w+)<', page)[1]


def test_a_new_key_is_shown_once_and_works(staff, environment):
    token = token_made(staff, environment, label="shop", **ALL_SCOPES)
    assert Api(environment, token).get("/facts").status_code == 200
    key = ApiKey.objects.get(label="shop")
    for path in ("/admin/authz_project/apikey/", f"/admin/authz_project/apikey/{key.id}/change/"):
        shown = staff.get(path)
        assert shown.status_code == 200
        assert token not in shown.content.decode()
        assert ">None<" not in shown.content.decode()  # never used, not revoked


def test_dates_are_in_iso_8601_and_utc_also_on_the_pages_of_the_framework(staff, environment):
    token_made(staff, environment, label="shop", **ALL_SCOPES)
    key = ApiKey.objects.get(label="shop")
    change = f"/admin/authz_project/apikey/{key.id}/change/"
    staff.post(change, {"label": "shops", "expires_at": "", **ALL_SCOPES})
    pages = {"/admin/authz_project/apikey/": key, change: key, "/admin/policy/environment/": environment}
    for path, of in pages.items():
        assert f">{of.created_at:%Y-%m-%dT%H:%MZ}<" in staff.get(path).content.decode(), path
    (entry, *_) = LogEntry.objects.all()
    history = staff.get(f"/admin/authz_project/apikey/{key.id}/history/").content.decode()
    assert f"{entry.action_time:%Y-%m-%dT%H:%MZ}" in history


def test_the_only_environment_is_selected_for_a_new_key(staff, environment):
    def is_selected() -> bool:
        page = staff.get("/admin/authz_project/apikey/add/").content.decode()
        return bool(re.search(r'<option value="\d+" selected>', page))

    Environment.objects.exclude(pk=environment.pk).delete()
    assert is_selected()
    Environment.objects.create(slug="staging", name="Staging")
    assert not is_selected()


def test_keys_are_revoked_and_never_deleted(staff, api):
    key = ApiKey.objects.get(environment=api.environment)
    for _ in range(2):
        staff.post("/admin/authz_project/apikey/", {"action": "revoke", "_selected_action": [key.id]})
    assert api.get("/facts").status_code == 401
    assert LogEntry.objects.get().change_message == "Revoked."
    assert staff.get(f"/admin/authz_project/apikey/{key.id}/delete/").status_code == 403


def test_the_end_of_a_key_can_be_moved_but_not_what_it_opens(staff, new_api):
    api, other = new_api("one"), new_api("other").environment
    key = ApiKey.objects.get(environment=api.environment)
    changed = {"environment": other.id, "label": "x", "expires_at": "2001-01-01T00:00:00", **ALL_SCOPES}
    staff.post(f"/admin/authz_project/apikey/{key.id}/change/", changed)
    key.refresh_from_db()
    assert (key.environment, key.label) == (api.environment, "x")
    assert api.get("/facts").status_code == 401


def test_an_environment_ends_with_its_facts_keys_and_policies(staff, new_api):
    environment = new_api("gone").environment
    store.apply(environment.id, [Inserts([Fact("p", (Value("T", "x"),))])])
    PolicyVersionFactory(environment=environment)
    page = f"/admin/policy/environment/{environment.id}/delete/"
    assert staff.get(page).status_code == 200
    assert staff.post(page, {"post": "yes"}).status_code == 302
    assert not Environment.objects.filter(slug="gone").exists()
    assert not fetch(select("1", limit=1)) and not ApiKey.objects.exists()


def test_the_default_environment_stays(staff, environment):
    assert staff.get(f"/admin/policy/environment/{environment.id}/delete/").status_code == 403


@pytest.mark.parametrize("slug", ["", "with space", "with_underscore", "x" * 41, "é"])
def test_short_names_fit_into_keys(staff, slug):
    staff.post("/admin/policy/environment/add/", {"slug": slug, "name": "x"})
    assert not Environment.objects.exists()


def test_environments_are_added(staff):
    assert staff.get("/admin/policy/environment/add/").status_code == 200
    staff.post("/admin/policy/environment/add/", {"slug": "staging", "name": "Staging"})
    assert read.stats(Environment.objects.get(slug="staging").id)["num_facts"] == 0


@pytest.mark.parametrize("path", ["", "authz_project/apikey/", "policy/environment/", "facts/signature/", "auth/user/"])
def test_strangers_are_asked_to_log_in(db, path):
    assert Client().get(f"/admin/{path}").status_code == 302
    assert Client().get("/admin").status_code == 302


def test_renaming_an_environment_sets_nothing_else_back(staff, environment, monkeypatch):
    """What was written while the form was open, by others, is theirs."""
    whole = EnvironmentAdmin.save_model

    def meanwhile(self, request, renamed, form, change):
        store.apply(environment.id, [Inserts([Fact("p", (Value("T", "x"),))])])
        whole(self, request, renamed, form, change)

    monkeypatch.setattr(EnvironmentAdmin, "save_model", meanwhile)
    before = Environment.objects.get(pk=environment.id)
    staff.post(f"/admin/policy/environment/{environment.id}/change/", {"name": "Renamed"})
    after = Environment.objects.get(pk=environment.id)
    assert after.name == "Renamed"
    assert after.signature_mark != before.signature_mark
    assert after.offset == before.offset + 2  # the fact's, and the new name's


# ---- what keys are good for -----------------------------------------------------------------------------------------


def test_a_key_says_what_it_is_good_for_and_who_made_it(staff, environment):
    token = token_made(staff, environment, label="shop", may_read="on")
    assert Api(environment, token).get("/facts").status_code == 200
    assert Api(environment, token).post("/batch", []).status_code == 403
    key = ApiKey.objects.get(label="shop")
    assert key.created_by == "admin admin"
    for path in ("/admin/authz_project/apikey/", f"/admin/authz_project/apikey/{key.id}/change/"):
        assert "admin admin" in staff.get(path).content.decode()
    assert re.search(r'field-good_for">read<', staff.get("/admin/authz_project/apikey/").content.decode())


def test_what_is_taken_from_a_key_or_given_to_it_counts_at_once(staff, api):
    key = ApiKey.objects.get(environment=api.environment)
    page = f"/admin/authz_project/apikey/{key.id}/change/"
    assert (api.get("/facts").status_code, api.post("/batch", []).status_code) == (200, 200)
    staff.post(page, {"label": "", "expires_at": "", "may_change_facts": "on"})
    assert (api.get("/facts").status_code, api.post("/batch", []).status_code) == (403, 200)
    staff.post(page, {"label": "", "expires_at": "", "may_read": "on"})
    assert (api.get("/facts").status_code, api.post("/batch", []).status_code) == (200, 403)


def test_a_key_that_is_good_for_nothing_is_no_key(staff, api):
    key = ApiKey.objects.get(environment=api.environment)
    for path in ("add/", f"{key.id}/change/"):
        page = staff.post(f"/admin/authz_project/apikey/{path}", {"environment": api.environment.id, "label": "odd"})
        assert "Select at least one scope" in page.content.decode()
    key.refresh_from_db()
    assert key.scopes == tuple(Scope) and ApiKey.objects.count() == 1


def test_selected_keys_are_rotated_and_their_successors_shown_once(staff, api):
    key = ApiKey.objects.get(environment=api.environment)
    selected = {"action": "rotate", "_selected_action": [key.id]}
    page = staff.post("/admin/authz_project/apikey/", selected)
    assert "no-store" in page["Cache-Control"]
    (token,) = re.findall(r'class="token">(e_\w+)<', page.content.decode())
    for each in (token, api.key):
        assert Api(api.environment, each).get("/facts").status_code == 200
    key.refresh_from_db()
    assert key.successor.created_by == "admin admin" and key.expires_at
    again = staff.post("/admin/authz_project/apikey/", selected, follow=True).content.decode()
    assert "No key was rotated" in again and "was already rotated. Rotate its successor" in again
    assert ApiKey.objects.count() == 2


def test_several_keys_are_rotated_or_none(staff, new_api):
    keys = [ApiKey.objects.get(environment=new_api(slug).environment) for slug in ("one", "two")]
    staff.post("/admin/authz_project/apikey/", {"action": "revoke", "_selected_action": [keys[1].id]})
    selected = {"action": "rotate", "_selected_action": [key.id for key in keys]}
    assert "No key was rotated" in staff.post("/admin/authz_project/apikey/", selected, follow=True).content.decode()
    assert ApiKey.objects.count() == 2 and not ApiKey.objects.exclude(successor=None).exists()


def test_who_may_not_make_keys_does_not_rotate_them(api, db):
    person = User.objects.create_user("ada", is_staff=True)
    person.user_permissions.add(*Permission.objects.filter(codename__in=["view_apikey", "change_apikey"]))
    client = Client()
    client.force_login(person)
    key = ApiKey.objects.get(environment=api.environment)
    client.post("/admin/authz_project/apikey/", {"action": "rotate", "_selected_action": [key.id]})
    assert ApiKey.objects.count() == 1
