"""Each page of the admin, for each role: who may open it, and whose requests change what."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.test import Client
from django.urls import URLPattern, URLResolver

from authz_project.models import ApiKey
from authz_project.roles import ROLES, create_groups
from policy import publishing
from policy.core.journal import By
from policy.models import Environment, PolicyDraft, PolicyVersion
from policy.publishing import publish
from tests.conftest import Api

pytestmark = pytest.mark.one_database

POLICY = 'actor User {} resource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }'
FACT = {"predicate": "has_role", "args": [
    {"type": "User", "id": "ann"}, {"type": "String", "id": "reader"}, {"type": "Doc", "id": "1"},
]}  # fmt: skip
VIEWING, EDITING, NOBODY = {"viewer", "editor", "publisher"}, {"editor", "publisher"}, set()
EDITOR, PUBLISHER, KEEPER, ALL = {"editor"}, {"publisher"}, {"key keeper"}, {*ROLES}
# Who may open which pages. Each page is in this table, by the name of its URL without the app; a name stands for those
# that begin with it, unless they are there, too.
OPENED = {
    "policyversion": VIEWING, "policyversion_activate": PUBLISHER, "policyversion_add": EDITING,
    "policyversion_editor": EDITING, "policyversion_delete": NOBODY,
    "signature": VIEWING, "signature_add": EDITOR, "signature_import": EDITOR, "signature_delete": EDITOR,
    "value": VIEWING, "ids": VIEWING, "decisions": VIEWING, "spaces": NOBODY,
    "environment": VIEWING, "environment_add": NOBODY, "environment_delete": NOBODY,
    "apikey": KEEPER, "apikey_delete": NOBODY,
    "user": NOBODY, "group": NOBODY, "load_example": NOBODY,
    "index": ALL, "log": ALL, "password_change": ALL, "jsi18n": ALL, "app_list": ALL, "go": VIEWING,
}  # fmt: skip
BESIDES = {"autocomplete", "view_on_site"}  # Django's own: of no model here


@dataclass
class There:
    """What is there to see and to change."""

    api: Api
    version: PolicyVersion
    active: PolicyVersion

    def arguments(self) -> dict[str, object]:
        key = ApiKey.objects.get(environment=self.api.environment)
        return {
            "policyversion": self.version.pk, "environment": self.api.environment.pk, "apikey": key.pk,
            "user": User.objects.get(username="root").pk, "group": Group.objects.first().pk,
        }  # fmt: skip

    def state(self) -> dict[str, object]:
        """Return all that anybody may change."""
        tables = {kind.__name__: rows(kind) for kind in (ApiKey, Environment, PolicyVersion, PolicyDraft, User, Group)}
        given = sorted(Group.objects.values_list("name", "permissions"))
        return {**tables, "given": given, "facts": self.api.get("/facts").json()}


def rows(kind: type[Model]) -> list:
    left_out = {"last_login", "last_used_at", "saved_at"}
    return list(kind.objects.order_by("pk").values(*(f.name for f in kind._meta.fields if f.name not in left_out)))


@pytest.fixture
def there(api: Api) -> There:
    create_groups("default", apps)
    versions = [publish(api.environment.pk, text, None, by=By("x")).version for text in (POLICY, POLICY + " ")]
    api.post("/facts", FACT)
    User.objects.create_superuser("root", password="right")
    return There(api, *versions)


def browser_of(*roles: str) -> Client:
    user = User.objects.get_or_create(username=" ".join(roles), is_staff=True)[0]
    user.groups.set(Group.objects.filter(name__in=roles))
    client = Client()
    client.force_login(user)
    return client


def pages(there: There) -> Iterator[tuple[str, str]]:
    """Yield each page's name, without its app, and its URL."""
    for name, pattern in walked(admin.site.urls[0]):
        if name is None or name in BESIDES:
            continue
        short = re.sub(r"^(authz_facts|authz_policy|authz_project|auth)_", "", name)
        known = there.arguments() | {"object_id": there.arguments().get(short.partition("_")[0], 1)}
        known |= {"id": known["object_id"], "name": "ask" if name == "go" else "clinic", "number": 1}
        known |= {"environment_id": there.api.environment.pk, "app_label": "auth"}
        yield short, "/admin/" + re.sub(r"<(?:\w+:)?(\w+)>", partial(_argument, known), pattern)


def _argument(known: dict[str, object], found: re.Match[str]) -> str:
    return str(known[found[1]])


def walked(patterns: list, before: str = "") -> Iterator[tuple[str | None, str]]:
    for each in patterns:
        if isinstance(each, URLResolver):
            yield from walked(each.url_patterns, before + str(each.pattern))
        elif isinstance(each, URLPattern):
            text = "auth/" if each.name == "app_list" else str(each.pattern)
            yield each.name, before + text


def who_may(name: str) -> set[str]:
    return OPENED[max((known for known in OPENED if name.startswith(known)), key=len)]


def test_each_page_opens_for_the_roles_that_the_table_says(there):
    browsers = {role: browser_of(role) for role in ROLES}
    nobody, superuser = browser_of(), Client()
    superuser.force_login(User.objects.get(username="root"))
    found = list(pages(there))
    assert len(found) > 50
    for name, url in found:
        if name == "logout":
            continue
        opened = {role for role, browser in browsers.items() if browser.get(url).status_code != 403}
        assert opened == who_may(name), (name, url)
        assert superuser.get(url).status_code != 403 or name.endswith("_delete"), url
        assert (nobody.get(url).status_code == 403) == (who_may(name) != ALL), url


def test_no_role_changes_anything_by_an_empty_request(there):
    browsers = [browser_of(role) for role in ROLES]
    before = there.state()
    for name, url in pages(there):
        if name not in ("logout", "password_change"):
            for browser in browsers:
                browser.post(url)
            assert there.state() == before, url


def acts(there: There) -> dict[str, tuple[set[str], str, dict]]:
    """Return what may be done: who may, and the request."""
    environment, known = there.api.environment.pk, there.arguments()
    text = {"environment": environment, "source": POLICY + "#", "seen": 2, "filename": "", "person": "PERSON"}
    versions, facts = "/admin/policy/policyversion", "/admin/facts/signature"
    keys, root = "/admin/authz_project/apikey", known["user"]
    selected = {"_selected_action": known["apikey"]}
    token = re.search(
        r'name="selected" value="([^"]+)"', browser_of("viewer", "editor").get(f"{facts}/").content.decode()
    )
    more = 'has_role(User:cat, "reader", Doc:1)'
    added = 'has_role(User:ben, "reader", Doc:1)'
    passwords = {"password1": "Long-enough-9", "password2": "Long-enough-9", "usable_password": "true"}
    return {
        "save a draft": (EDITING, f"{versions}/add/draft/", text),
        "publish, or request it": (EDITING, f"{versions}/add/", text),
        "activate": (PUBLISHER, f"{versions}/{there.version.pk}/activate/", {"seen": 2}),
        "change a version": (NOBODY, f"{versions}/{there.version.pk}/change/", {"source": "x"}),
        "delete a version": (NOBODY, f"{versions}/{there.version.pk}/delete/", {"post": "yes"}),
        "add a fact": (EDITOR, f"{facts}/add/", {"environment": environment, "fact": added}),
        "import facts": (EDITOR, f"{facts}/import/", {"environment": environment, "format": "notation", "text": more}),
        "delete a fact": (EDITOR, f"{facts}/delete/", {"confirmed": "yes", "selected": token[1], "fact": "TOKEN"}),
        "create a key": (KEEPER, f"{keys}/add/", {"environment": environment, "label": "x", "may_read": "on"}),
        "change a key": (KEEPER, f"{keys}/{known['apikey']}/change/", {"label": "y", "may_read": "on"}),
        "rotate a key": (KEEPER, f"{keys}/", {"action": "rotate", **selected}),
        "revoke a key": (KEEPER, f"{keys}/", {"action": "revoke", **selected}),
        "delete a key": (NOBODY, f"{keys}/{known['apikey']}/delete/", {"post": "yes"}),
        "add an environment": (NOBODY, "/admin/policy/environment/add/", {"slug": "x", "name": "x"}),
        "rename an environment": (NOBODY, f"/admin/policy/environment/{environment}/change/", {"name": "x"}),
        "load an example": (NOBODY, "/admin/examples/clinic/", {}),
        "add a user": (NOBODY, "/admin/auth/user/add/", {"username": "x", **passwords}),
        "set a password": (NOBODY, f"/admin/auth/user/{root}/password/", passwords),
        "change a group": (NOBODY, f"/admin/auth/group/{known['group']}/change/", {"name": "x"}),
    }  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_each_role_does_what_its_name_says_and_nothing_else(there, role):
    browser = browser_of(role)
    person = str(User.objects.get(username=role).pk)
    done, asked_for = set(), acts(there)
    for act, (_, url, sent) in asked_for.items():
        before = there.state()
        sent = sent | ({"seen": publishing.active_number(there.api.environment.pk)} if "seen" in sent else {})
        told = {name: person if value == "PERSON" else value for name, value in sent.items()}
        if told.get("fact") == "TOKEN":
            asked = browser.post(url, {"selected": told["selected"]}).content.decode()
            told["fact"] = (re.findall(r'name="fact" value="([^"]+)"', asked) or ["x"])[0]
        browser.post(url, told)
        if there.state() != before:
            done.add(act)
    assert (publishing.active_number(there.api.environment.pk) == 2) == (role != "publisher")
    assert done == {act for act, (roles, *_) in asked_for.items() if role in roles}


def test_the_roles_together_load_an_example(there):
    assert browser_of("editor", "publisher").post("/admin/examples/clinic/").status_code != 403


def test_roles_are_created_once_and_stay_as_they_were_changed(db):
    create_groups("default", apps)
    Group.objects.get(name="viewer").permissions.clear()
    Group.objects.get(name="editor").delete()
    create_groups("default", apps)
    counts = {group.name: group.permissions.count() for group in Group.objects.all()}
    assert counts == {name: len(given) for name, given in ROLES.items()} | {"viewer": 0}
