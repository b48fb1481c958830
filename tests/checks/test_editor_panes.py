"""What stands beside a policy while it is written: what it would change, and its picture."""

import json

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from policy.models import PolicyVersion
from tests.checks.conftest import POLICY

pytestmark = pytest.mark.one_database

EDITOR = "/admin/policy/policyversion/add/"
WIDER = POLICY.replace("}\n", "}\n", 1) + '\nhas_permission(_: User, "read", _: Repo);\n'


@pytest.fixture
def version(repos) -> PolicyVersion:
    return PolicyVersion.objects.get()


def client_of(*codenames: str) -> Client:
    user = User.objects.create_user("-".join(codenames), is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def writer(version) -> Client:
    return client_of("add_policyversion", "view_policyversion", "view_signature")


def ask(client: Client, version: PolicyVersion, pane: str, text: str):
    person = client.session["_auth_user_id"]
    return client.post(f"{EDITOR}{pane}/", {"environment": version.environment_id, "person": person, "source": text})


def told(client: Client, version: PolicyVersion, pane: str, text: str) -> dict:
    answer = ask(client, version, pane, text)
    assert answer.status_code == 200, answer.content
    return json.loads(answer.content)


def test_the_editor_has_both_beside_it(writer):
    page = writer.get(EDITOR).content.decode()
    for pane in ("change", "picture"):
        assert f'data-address="{EDITOR}{pane}/?environment=' in page
    assert "checks/workbench.css" in page


def test_what_would_change_is_told_in_short(writer, version):
    html = told(writer, version, "change", WIDER)["html"]
    assert "newly allowed" in html and "0 removed, 1 added" in html
    assert f'data-sends="/admin/policy/policyversion/{version.pk}/preview/"' in html
    assert "no rules changed" in told(writer, version, "change", POLICY)["html"]


def test_the_text_is_drawn(writer, version):
    html = told(writer, version, "picture", POLICY.replace("Repo", "Barn"))["html"]
    assert "<svg" in html and "Barn" in html and "Repo" not in html
    assert "Nothing to show" in told(writer, version, "picture", "# nothing yet\n")["html"]


def test_what_has_no_effect_is_listed_with_its_place(writer, version):
    idle = POLICY.replace("permissions = [", 'permissions = ["fly", ')
    html = told(writer, version, "analysis", idle)["html"]
    start = idle.index('"fly"')
    assert f'data-start="{start}"' in html and "nobody can have" in html and "(proved)" in html
    assert "Every role, permission and rule has an effect." in told(writer, version, "analysis", POLICY)["html"]


@pytest.mark.parametrize("pane", ["change", "picture", "analysis"])
def test_what_is_no_policy_is_neither_compared_nor_drawn(writer, version, pane):
    assert "resource" in told(writer, version, pane, "resource {")["refused"]


def test_the_whole_comparison_takes_the_text(writer, version):
    page = writer.post(f"/admin/policy/policyversion/{version.pk}/preview/", {"text": WIDER})
    assert "newly allowed" in page.content.decode()


def test_answers_are_for_those_who_may_see_facts_and_policies(version):
    for codenames in (["add_policyversion", "view_policyversion"], ["add_policyversion", "view_signature"]):
        client = client_of(*codenames)
        assert ask(client, version, "change", POLICY).status_code == 403
        assert f"{EDITOR}change/" not in client.get(EDITOR).content.decode()
        assert "<svg" in told(client, version, "picture", POLICY)["html"]
    reader = client_of("view_policyversion", "view_signature")
    for pane in ("change", "picture", "analysis"):
        assert ask(reader, version, pane, POLICY).status_code == 403
    assert Client(enforce_csrf_checks=True).post(f"{EDITOR}change/", {}).status_code in (302, 403)
