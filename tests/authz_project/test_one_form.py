"""Facts, times and numbers have one form on all pages of the admin; what is used most comes first."""

import json
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from authz_project.keys import create_key
from facts import store
from facts.store import Inserts
from facts.wire import fact_from_text
from policy import publishing
from policy.models import PolicyVersion, default_environment
from tests.service import ROOT

pytestmark = pytest.mark.one_database

POLICY = """actor User {}
resource Repo { permissions = ["read"]; roles = ["owner"]; "read" if "owner"; }
test "one" { setup { has_role(User{"ann"}, "owner", Repo{"r"}); } assert allow(User{"ann"}, "read", Repo{"r"}); }
"""
FACT = 'has_role(User:ann, "owner", Repo:r)'
ASKED = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Repo", "resource_id": "r"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?Z")
OTHER_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d|\b\d{1,2}:\d\d [ap]\.?m|\b(Jan|Feb|March|April|Aug|Sept|Oct|Nov|Dec)\b\.? \d"
)


@pytest.fixture
def admin(db, settings, tmp_path) -> Client:
    environment = default_environment()
    decision = {
        "time": "2026-11-03T14:02:11.123456Z", "request_id": "r", "environment": environment.pk, "key": "key 1",
        "endpoint": "authorize", "question": ASKED, "answer": {"allowed": True}, "revision": 2, "policy_version": 1,
        "microseconds": 412,
    }  # fmt: skip
    settings.DECISION_LOG = str(tmp_path / "decisions.jsonl")
    (tmp_path / "decisions.jsonl").write_text(f"{json.dumps(decision)}\n")
    publishing.publish(environment.pk, POLICY, None)
    store.apply(environment.pk, [Inserts([fact_from_text(FACT)], None)])
    create_key(environment, "billing")
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    return client


def page(admin: Client, address: str) -> str:
    found = admin.get(address, follow=True)
    assert found.status_code == 200, address
    text = re.sub(r"<(script|style)[\s\S]*?</\1>", " ", found.content.decode())
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", text))
    return plain.replace("&quot;", '"').replace("&#x27;", "'").replace("\N{NO-BREAK SPACE}", " ")


PAGES = (
    "/admin/", "/admin/go/policy/", "/admin/go/versions/", "/admin/go/facts/", "/admin/go/history/",
    "/admin/authz_project/apikey/", "/admin/go/ask/?actor=User:ann&action=read&resource=Repo:r&kind=check",
    "/admin/facts/value/?environment=default&type=User&id=ann", "/admin/decisions/",
)  # fmt: skip


def test_times_have_one_form(admin):
    shown = {address: page(admin, address) for address in PAGES}
    assert {address: OTHER_TIMES.findall(text) for address, text in shown.items() if OTHER_TIMES.search(text)} == {}
    assert sum(bool(TIME.search(text)) for text in shown.values()) >= 5
    assert "2026-11-03T14:02:11Z" in shown["/admin/decisions/"]


def test_facts_are_written_as_in_the_documents(admin):
    revision = f"/admin/facts/signature/revision/{default_environment().pk}/2/"
    for address in (revision, "/admin/go/ask/?actor=User:ann&action=read&resource=Repo:r"):
        assert FACT in page(admin, address)


def test_numbers_agree_with_their_nouns(admin):
    for address in PAGES:
        wrong = re.findall(
            r"\b1 (?:facts|tests|rules|versions|keys|warnings|permissions|revisions)\b", page(admin, address)
        )
        assert not wrong, address


def test_editing_is_the_first_thing_that_a_policy_offers(admin):
    version = PolicyVersion.objects.get()
    text = admin.get(f"/admin/policy/policyversion/{version.pk}/change/").content.decode()
    tools = re.findall(r"<a[^>]*>([^<]*)</a>", text.partition('<ul class="object-tools">')[2].partition("</ul>")[0])
    assert tools[0] == "Edit policy" and text.count("addlink") == 1, "and it stands out"


def test_a_new_key_has_a_button_that_copies_it(admin):
    form = {"label": "new", "environment": default_environment().pk, "may_read": "on"}
    text = admin.post("/admin/authz_project/apikey/add/", form, follow=True).content.decode()
    assert re.search(r'id="token"[^>]*>e_default_', text) and 'data-copy="token"' in text and "policy/copy" in text


def test_storing_what_is_stored_is_told_to_be_nothing_new(admin):
    environment = default_environment()
    applied = store.apply(environment.pk, [Inserts([fact_from_text(FACT)], None)])
    text = page(admin, "/admin/go/history/")
    assert applied.offset and not re.search(r"Facts changed \+0|0 facts stored", text)


def test_documents_agree_about_clients():
    """Those that are in no test here are told to send the same requests, and nowhere that they were not tried."""
    for name in ("interface.md", "moving.md", "limitations.md"):
        text = (ROOT / "authz_project" / "docs" / name).read_text()
        assert not re.search(r"\b(Java|Ruby|\.NET)\b[^.]*\b(not|never)\b[^.]*\b(tried|tested)", text), name
