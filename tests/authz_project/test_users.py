"""Who may change users and groups in the admin: never to have more than before."""

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.test import Client

from authz_project.command_runner import CommandLine

pytestmark = pytest.mark.one_database

USERS, GROUPS = "/admin/auth/user/", "/admin/auth/group/"
OWN = ("add_user", "change_user", "delete_user", "view_user", "add_group", "change_group", "delete_group")


def permission(name: str) -> Permission:
    return Permission.objects.get(codename=name)


@pytest.fixture
def root(db) -> User:
    return User.objects.create_superuser("root", password="right")


@pytest.fixture
def manager(db) -> User:
    user = User.objects.create_user("manager", password="right", is_staff=True)
    user.user_permissions.set(map(permission, OWN))
    return user


@pytest.fixture
def client(manager) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(manager)
    return client


def change(client: Client, user: User, **fields: object):
    kept = {
        "username": user.username, "is_active": "on", "is_staff": "on", "date_joined_0": "2026-01-01",
        "date_joined_1": "00:00:00", "user_permissions": [each.pk for each in user.user_permissions.all()],
        "groups": [each.pk for each in user.groups.all()],
    }  # fmt: skip
    return client.post(f"{USERS}{user.pk}/change/", kept | fields)


def test_nobody_makes_a_superuser_but_superusers(client, manager, root):
    other = User.objects.create_user("other")
    for user in (manager, other):
        assert change(client, user, is_superuser="on").status_code == 302
        user.refresh_from_db()
        assert user.is_staff and not user.is_superuser
    made = {"username": "new", "password1": "Long-enough-9", "password2": "Long-enough-9", "is_superuser": "on"}
    assert client.post(f"{USERS}add/", made | {"usable_password": "true"}).status_code == 302
    assert not User.objects.get(username="new").is_superuser
    browser = Client()
    browser.force_login(root)
    assert change(browser, other, is_superuser="on").status_code == 302
    other.refresh_from_db()
    assert other.is_superuser


def test_nobody_gives_a_permission_or_group_that_they_do_not_have(client, manager, db):
    other, strong, weak = (
        User.objects.create_user("other"),
        Group.objects.create(name="s"),
        Group.objects.create(name="w"),
    )
    strong.permissions.add(permission("add_apikey"), permission("view_user"))
    weak.permissions.add(permission("view_user"))
    for user in (manager, other):
        assert change(client, user, user_permissions=[permission("add_apikey").pk]).status_code == 200
        assert change(client, user, groups=[strong.pk]).status_code == 200
        assert not User.objects.get(pk=user.pk).has_perm("authz_project.add_apikey")
    assert change(client, other, groups=[weak.pk], user_permissions=[permission("view_user").pk]).status_code == 302
    assert list(other.groups.all()) == [weak] and list(other.user_permissions.all()) == [permission("view_user")]


def test_nobody_gives_a_group_more_than_they_have(client, manager):
    weak, strong = Group.objects.create(name="weak"), Group.objects.create(name="strong")
    manager.groups.add(weak)
    strong.permissions.add(permission("add_apikey"))
    sent = {"name": "weak", "permissions": [permission("add_apikey").pk]}
    assert client.post(f"{GROUPS}{weak.pk}/change/", sent).status_code == 200
    assert client.post(f"{GROUPS}add/", sent | {"name": "new"}).status_code == 200
    assert not weak.permissions.exists() and not Group.objects.filter(name="new").exists()
    assert client.post(f"{GROUPS}{strong.pk}/change/", {"name": "weaker", "permissions": []}).status_code == 403
    assert client.post(f"{GROUPS}{strong.pk}/delete/", {"post": "yes"}).status_code == 403
    sent = {"name": "weak", "permissions": [permission("view_user").pk]}
    assert client.post(f"{GROUPS}{weak.pk}/change/", sent).status_code == 302
    assert list(weak.permissions.all()) == [permission("view_user")]


@pytest.mark.parametrize("kind", ["superuser", "by itself", "by a group"])
def test_nobody_changes_who_may_do_more(client, root, kind):
    """Neither fields nor the password, with which one could log in; one by one, or several."""
    user = root
    if kind != "superuser":
        user = User.objects.create_user("boss", password="right", is_staff=True)
    if kind == "by itself":
        user.user_permissions.add(permission("add_apikey"))
    if kind == "by a group":
        user.groups.add(group := Group.objects.create(name="keys"))
        group.permissions.add(permission("add_apikey"))
    before = User.objects.filter(pk=user.pk).values().get()
    passwords = {"password1": "Long-enough-9", "password2": "Long-enough-9", "usable_password": "true"}
    assert change(client, user, username="mallory").status_code == 403
    assert client.get(f"{USERS}{user.pk}/password/").status_code == 403
    assert client.post(f"{USERS}{user.pk}/password/", passwords).status_code == 403
    assert client.post(f"{USERS}{user.pk}/delete/", {"post": "yes"}).status_code == 403
    bulk = {"action": "delete_selected", "_selected_action": [user.pk], "post": "yes"}
    assert client.post(USERS, bulk).status_code == 403
    assert User.objects.filter(pk=user.pk).values().get() == before
    assert client.get(f"{USERS}{user.pk}/change/").status_code == 200  # to look at


def test_whoever_may_do_less_is_managed_as_before(client):
    user = User.objects.create_user("other", password="right")
    passwords = {"password1": "Long-enough-9", "password2": "Long-enough-9", "usable_password": "true"}
    assert client.post(f"{USERS}{user.pk}/password/", passwords).status_code == 302
    user.refresh_from_db()
    assert user.check_password("Long-enough-9")
    bulk = {"action": "delete_selected", "_selected_action": [user.pk], "post": "yes"}
    assert client.post(USERS, bulk).status_code == 302
    assert not User.objects.filter(username="other").exists()


@pytest.mark.parametrize("place", ["https://evil.example/", "//evil.example", "javascript:alert(1)", ""])
def test_a_login_that_leads_elsewhere_leads_home(root, place):
    answer = Client().post(f"/admin/login/?next={place}", {"username": "root", "password": "right", "next": place})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")


def test_createsuperuser_does_not_report_migrations(db, capsys, monkeypatch):
    """`serve` applies them, and `/readyz` reports them: here, they would only be noise."""
    monkeypatch.setattr("django.db.migrations.executor.MigrationExecutor.migration_plan", lambda *args: ["one"])
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "not used 123")
    command = CommandLine(["authz"]).fetch_command("createsuperuser")
    call_command(command, "--noinput", "--username", "zoe", "--email", "z@example.org")
    told = capsys.readouterr()
    assert "migration" not in told.out + told.err and User.objects.filter(username="zoe").exists()
