"""A database of the version before keys had scopes is taken over whole: its keys, its facts and its history."""

from pathlib import Path

import pytest

from tests.authz_project.test_backup import manage as said
from tests.authz_project.test_serve import SECRET
from tests.authz_project.test_upgrade import asked, database_of, may_read, role
from tests.service import Service, start_service

DUMP = Path(__file__).with_name("before_key_scopes.sql").read_text()
# Of nothing but the dump.
BILLING = "e_default_xHbwsgkMvB_TjMV4MnnycLeF24gUAOM01obiEazlaxzNYxopgvP"
OTHER = "e_other_V5UNLanCFw_U94EnAKnS5IP15gVyWoJ9z7zb8CDpNAT1o1Wffjh"
REVOKED = "e_default_qSunQELPiv_t9laqbwL6Jr0xRlgSVGuQzY8rfwtcPTvRnidotbX"
EXPIRED = "e_default_YbSIgdnscG_6PFk7nRV29Mow5GJWaYbJaOEm5CCvB6CH2bUBMXR"
LAST = 5  # the revision of the last change before


pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request, database_urls, tmp_path_factory) -> str:
    return database_of(DUMP, request.param, database_urls, tmp_path_factory.mktemp("before"))


@pytest.fixture(scope="module")
def upgraded(url, tmp_path_factory):
    service = start_service(tmp_path_factory.mktemp("upgraded"), url, "--workers", "1", SECRET_KEY=SECRET)
    yield service
    service.stop()


def test_it_agrees_with_itself_and_can_be_copied(upgraded: Service, url, tmp_path):
    found = said(tmp_path, url, "verify")
    assert f"facts of `default`: 3 stored and 1 past at revision {LAST}" in found
    assert 'version 2 compiles; User:ann can "read" 1 Doc' in found
    if url.startswith("sqlite"):
        said(tmp_path, url, "backup", "copy.sqlite3")
        assert "WRONG" not in said(tmp_path, url, "verify", "copy.sqlite3")


def test_keys_of_before_go_on_and_are_good_for_all(upgraded: Service, url, tmp_path):
    billing, other = upgraded.client(BILLING), upgraded.client(OTHER)
    for client in (billing, other):
        assert client.get("/facts").status_code == 200
        assert client.post("/policy", {"src": 5}).status_code == 400  # and not 403
        assert client.post("/batch", []).status_code == 200
    for gone in (REVOKED, EXPIRED):
        assert upgraded.client(gone).get("/facts").status_code == 401
    listed = {line.split()[0]: line for line in said(tmp_path, url, "api_keys", "list").splitlines()}
    assert "active until 2099-01-01  all  last used 2026-11-2" in listed["e_default_xHbwsgkMvB"]
    assert "revoked 2026-11-23  all  never used" in listed["e_default_qSunQELPiv"]
    assert "expired 2026-11-22  all  never used" in listed["e_default_YbSIgdnscG"]
    assert "active  all  " in listed["e_other_V5UNLanCFw"]


def test_facts_and_their_history_are_what_they_were(upgraded: Service):
    client = upgraded.client(BILLING)
    assert [may_read(client, user) for user in ("ann", "ben", "cat", "fay")] == [True, True, False, True]
    assert [may_read(client, user, as_of=3) for user in ("ann", "cat", "fay")] == [True, True, False]
    assert not may_read(client, "ann", policy_version=1)
    ends = [fact["expires_at"] for fact in client.get("/facts").json() if "expires_at" in fact]
    assert ends == ["2099-01-01T00:00:00Z"]
    assert client.get("/changes", params={"after": 3}).status_code == 200
    changed = client.post("/batch", [{"inserts": [role("eve", "reader")]}])
    assert int(changed.headers["OsoOffset"]) > LAST
    assert client.post("/authorize", asked("eve")).json() == {"allowed": True}


def test_a_key_of_before_is_rotated(upgraded: Service, url, tmp_path):
    new = said(tmp_path, url, "api_keys", "rotate", "other").splitlines()[0]
    for key in (OTHER, new):
        assert upgraded.client(key).get("/facts").status_code == 200
