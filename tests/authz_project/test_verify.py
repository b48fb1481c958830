"""Whether what is stored agrees with itself: after whatever was done, and not after what nobody should do."""

import io
from itertools import count
from threading import Thread

import pytest
from django.core.management import call_command
from django.db import connection, connections

from authz_project.management.commands import verify
from authz_project.management.commands.verify import findings
from facts import history
from facts.views import PATTERN
from policy.models import Environment

POLICY = """
actor User {}
resource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }
"""


def role(user: str, **more: str) -> dict:
    args = [("User", user), ("String", "reader"), ("Doc", "d")]
    return {"predicate": "has_role", "args": [{"type": type_name, "id": text} for type_name, text in args], **more}


ANYBODY = {"predicate": "has_role", "args": [{"type": "User"}, None, None]}


@pytest.fixture
def used(api):
    """Facts came and went in all the ways that there are."""
    api.post("/policy", {"src": POLICY})
    api.post("/batch", [{"inserts": [role(f"u{number}") for number in range(20)]}])
    api.post("/batch", [{"inserts": [role("u1"), role("new")]}])
    api.post("/batch", [{"deletes": [role("u1")]}, {"inserts": [role("u1"), role("u2")]}])
    api.post("/batch", [{"deletes": [role("u2"), role("u3"), role("nobody")]}])
    api.post("/bulk_load", [role(f"b{number}") for number in range(5)])
    api.post("/bulk", {"delete": [role("b1")], "tell": [role("b2"), role("b9")]})
    api.post("/batch", [{"inserts": [role("gone", expires_at="2001-01-01T00:00:00Z")]}])
    api.post("/batch", [{"inserts": [role("later", expires_at="2099-01-01T00:00:00Z")]}])
    api.post("/batch", [{"inserts": [role("later", expires_at="2098-01-01T00:00:00Z")]}])
    history.sweep(api.environment.pk)
    api.delete("/facts", role("u4"))
    api.post("/policy", {"src": POLICY + "\n# again"})
    return api


def faults() -> list[str]:
    return [finding.text for finding in findings() if not finding.is_good]


def test_what_was_done_agrees_with_itself(used, new_api):
    other = new_api("other")
    assert faults() == []
    other.post("/batch", [{"inserts": [role("x")]}])
    other.post("/clear_data")
    assert faults() == []
    said = io.StringIO()
    call_command("verify", stdout=said)
    assert "WRONG" not in said.getvalue() and 'can "read" 1 Doc' in said.getvalue()
    assert "facts of `other`: 0 stored and 1 past at revision 2" in said.getvalue()


def test_what_was_forgotten_or_pruned_is_no_fault(used):
    used.post("/batch", [{"deletes": [ANYBODY]}, {"inserts": [role("u5")]}])
    assert faults() == [] and not [each for each in findings() if "forgotten" in each.text]
    count = history.forget(used.environment.pk, PATTERN.decode(ANYBODY, ""))
    assert faults() == []
    assert [each for each in findings() if f", {count} past facts forgotten" in each.text]
    used.post("/batch", [{"inserts": [role("u6")]}])
    history.prune(1e-12)
    assert faults() == []
    used.post("/batch", [{"inserts": [role("u7")]}, {"deletes": [role("u5")]}])
    assert Environment.objects.get(pk=used.environment.pk).horizon > 0
    assert faults() == []


SPOILED = {
    "DELETE FROM authz_fact WHERE a0 = 'u9'": "are stored, but the revisions add up to",
    "UPDATE authz_fact SET since = since + 1000 WHERE a0 = 'u9'": "facts refer to revision 1",
    'UPDATE authz_environment SET "offset" = "offset" + 5': "but the last revision is",
    'UPDATE authz_environment SET "offset" = 5': "facts refer to revision",
    'UPDATE authz_environment SET horizon = "offset" + 5': "the horizon is after the last revision",
    "DELETE FROM authz_revision WHERE number = 2": "1 revision missing",
    "UPDATE authz_past_fact SET since = until WHERE a0 = 'u3'": "1 past fact ended before",
    "INSERT INTO authz_past_fact SELECT sig, 'z', a1, a2, a3, a4, since, until, expires_at FROM authz_past_fact"
    " WHERE a0 = 'u3'": "1 past fact more than the revisions deleted",
    "UPDATE authz_signature SET since = since + 3 WHERE predicate = 'has_role'": "older than the first of the same",
    "UPDATE authz_environment SET policy_version_id = NULL": "the active policy differs from that of the last revision",
    "UPDATE authz_fact SET sig = 999999 WHERE a0 = 'u9'": "facts refer to 1 missing signature",
    "DELETE FROM django_migrations WHERE app = 'authz_facts' AND name LIKE '0003%%'": "from an older version",
}


@pytest.mark.parametrize("statement", SPOILED)
def test_what_does_not_agree_is_found(used, statement):
    if "django_migrations" in statement:
        connection.cursor().execute("CREATE TABLE kept AS SELECT * FROM django_migrations")
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement.replace("%%", "%"))
        assert [text for text in faults() if SPOILED[statement] in text], faults()
        with pytest.raises(SystemExit):
            call_command("verify", stdout=io.StringIO())
    finally:
        if "django_migrations" in statement:
            with connection.cursor() as cursor:
                cursor.execute("DELETE FROM django_migrations")
                cursor.execute("INSERT INTO django_migrations SELECT * FROM kept")
                cursor.execute("DROP TABLE kept")


def test_what_is_changed_meanwhile_is_no_fault(used, monkeypatch):
    """Whenever somebody else changes facts: before they are counted, and before each question."""
    writers = count()

    def change() -> None:
        user = f"w{next(writers)}"
        assert used.post("/batch", [{"deletes": [ANYBODY]}, {"inserts": [role(user)]}]).status_code == 200
        connections.close_all()

    def first(step):
        def changed(*args):
            writer = Thread(target=change)
            writer.start()
            writer.join()
            return step(*args)

        return changed

    for name in ("_stored", "_revisions", "finding_of_policy", "_confirm"):
        monkeypatch.setattr(verify, name, first(getattr(verify, name)))
    assert faults() == []
    assert next(writers) >= 4
