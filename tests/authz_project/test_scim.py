"""Provisioning by SCIM: as Okta and Entra send it, as the RFC's examples do, and as a conformance suite does."""

import json
import logging
import re
from dataclasses import dataclass, replace
from importlib import import_module
from urllib.parse import quote

import pytest
import requests
from django.apps import apps
from django.core.management.base import CommandError
from django.core.wsgi import get_wsgi_application
from django.test import Client
from django.utils.module_loading import import_string

from authz_project import scim
from authz_project.keys import create_key
from authz_project.management.commands.serve import scim_mapping
from authz_project.models import ScimResource
from authz_project.scim import MappingInvalid, mapping_of
from policy.active import Scope
from policy.errors import AuthzError
from policy.publishing import publish
from tests.service import start_service

# The conformance suite: to import it takes a second, which each process that collects tests would need.
CLIENT, CHECK = "scim2_client.engines.wsgi.WSGISCIMClient", "scim2_tester.check_server"
POLICY = """
actor User {}
resource Organization { roles = ["member", "writer", "owner"]; }
has_group(_: User, _: String);
"""
MAPPING = """
users:
  - has_role(User:{userName}, "member", Organization:acme)
groups:
  "*":
    - has_relation(User:{userName}, "group", Group:{group})
  Engineering:
    - has_role(User:{userName}, "writer", Organization:acme)
  Writers:
    - has_role(User:{userName}, "writer", Organization:acme)
left:
  - has_role(User:{userName}, _, _)
"""
USER, GROUP = (f"urn:ietf:params:scim:schemas:core:2.0:{kind}" for kind in ("User", "Group"))
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


@dataclass
class Directory:
    """Asks as an identity provider does."""

    api: object

    def ask(self, method: str, path: str, body: object = None, status: int = 200, **headers: str):
        key = {"Authorization": f"Bearer {self.api.key}"} | headers
        sent = b"" if body is None else json.dumps(body).encode()
        answer = Client(raise_request_exception=False).generic(
            method, f"/scim/v2{path}", sent, "application/scim+json", headers=key
        )
        assert answer.status_code == status, answer.content
        assert status >= 204 or method == "HEAD" or answer["Content-Type"] == "application/scim+json"
        answer.data = json.loads(answer.content) if answer.content else None
        return answer

    def user(self, name: str, **more: object) -> str:
        return self.ask("POST", "/Users", {"schemas": [USER], "userName": name} | more, 201).data["id"]

    def group(self, name: str, *members: str) -> str:
        listed = [{"value": each} for each in members]
        return self.ask("POST", "/Groups", {"schemas": [GROUP], "displayName": name, "members": listed}, 201).data["id"]

    def patch(self, path: str, *operations: dict, status: int = 200):
        return self.ask("PATCH", path, {"schemas": [PATCH], "Operations": list(operations)}, status)

    def facts(self, name: str) -> set[str]:
        found = self.api.get(f"/facts?args.0.type=User&args.0.id={name}").json()
        return {" ".join(arg["id"] for arg in fact["args"][1:]) for fact in found}


@pytest.fixture
def directory(api, settings) -> Directory:
    settings.SCIM_MAPPING = mapping_of(MAPPING)
    return Directory(api)


MEMBER, WRITER = "member acme", "writer acme"


@pytest.mark.one_database
def test_the_conformance_suite_passes(directory, caplog):
    caplog.set_level(logging.ERROR)
    key = {"Authorization": f"Bearer {directory.api.key}"}
    client = import_string(CLIENT)(get_wsgi_application(), "http://testserver/scim/v2", key)
    results = import_string(CHECK)(client)
    wrong = [f"{each.title}: {each.reason}" for each in results if each.status.name in ("ERROR", "CRITICAL")]
    assert wrong == [] and len(results) > 50


# ---- facts -----------------------------------------------------------------------------------------------------------


def test_facts_follow_users_and_groups(directory):
    ann, ben = directory.user("ann@example.org"), directory.user("ben")
    assert directory.facts("ann@example.org") == {MEMBER}
    group = directory.group("Engineering", ann)
    assert directory.facts("ann@example.org") == {MEMBER, WRITER, "group Engineering"}
    directory.patch(f"/Groups/{group}", {"op": "add", "path": "members", "value": [{"value": ben}]})
    assert directory.facts("ben") == {MEMBER, WRITER, "group Engineering"}
    directory.patch(f"/Groups/{group}", {"op": "replace", "path": "displayName", "value": "Sales"})
    assert directory.facts("ann@example.org") == directory.facts("ben") == {MEMBER, "group Sales"}
    directory.patch(f"/Users/{ben}", {"op": "replace", "path": "userName", "value": "Ben"})
    assert directory.facts("ben") == set() and directory.facts("Ben") == {MEMBER, "group Sales"}
    directory.ask("DELETE", f"/Groups/{group}", status=204)
    assert directory.facts("Ben") == {MEMBER}
    history = directory.api.get("/history?predicate=has_role").json()
    assert "key" in json.dumps(history)


def test_a_fact_that_follows_twice_stays_until_neither_says_it(directory):
    ann = directory.user("ann")
    groups = [directory.group(name, ann) for name in ("Engineering", "Writers")]
    directory.ask("DELETE", f"/Groups/{groups[0]}", status=204)
    assert WRITER in directory.facts("ann")
    directory.ask("DELETE", f"/Groups/{groups[1]}", status=204)
    assert WRITER not in directory.facts("ann")


def test_a_change_reads_only_the_resources_that_it_is_about(directory, monkeypatch):
    ann, ben = directory.user("ann"), directory.user("ben")
    groups = [directory.group(f"Team {number}", ben, *([ann] if number < 2 else [])) for number in range(10)]
    read, resource_of = [], scim.resource_of
    monkeypatch.setattr(scim, "resource_of", lambda row: (read.append(row.uid), resource_of(row))[1])
    directory.patch(f"/Groups/{groups[5]}", {"op": "add", "path": "members", "value": [{"value": ann}]})
    assert set(read) == {ann, groups[5]}
    assert directory.facts("ann") == {MEMBER, "group Team 0", "group Team 1", "group Team 5"}
    read.clear()
    directory.patch(f"/Users/{ann}", {"op": "replace", "path": "title", "value": "Engineer"})
    assert set(read) == {ann}
    read.clear()
    directory.ask("DELETE", f"/Users/{ann}", status=204)
    assert set(read) == {ann, groups[0], groups[1], groups[5]}
    assert directory.facts("ann") == set() and directory.facts("ben") == {
        MEMBER,
        *(f"group Team {n}" for n in range(10)),
    }


@pytest.mark.one_database
def test_groups_of_an_earlier_version_keep_their_members(directory):
    ann = directory.user("Ann")
    group = directory.group("Writers", ann, "nobody")
    ScimResource.objects.update(title="")
    ScimResource.members.through.objects.all().delete()
    import_module("authz_project.migrations.0005_scim_members").fill(apps, None)
    directory.patch(f"/Users/{ann}", {"op": "replace", "path": "title", "value": "Engineer"})
    assert directory.facts("Ann") == {MEMBER, WRITER, "group Writers"}
    directory.ask("DELETE", f"/Groups/{group}", status=204)
    assert directory.facts("Ann") == {MEMBER}


@pytest.mark.parametrize("way", ["DELETE", "inactive", "PUT"])
def test_leaving_deletes_what_follows_and_what_the_mapping_says(directory, way):
    ann = directory.user("ann")
    directory.user("ben")
    group = directory.group("Engineering", ann)
    for name in ("ann", "ben"):
        fact = {"predicate": "has_role", "args": [
            {"type": "User", "id": name}, {"type": "String", "id": "owner"}, {"type": "Organization", "id": "x"},
        ]}  # fmt: skip
        assert directory.api.post("/facts", fact).status_code == 200
    if way == "DELETE":
        directory.ask("DELETE", f"/Users/{ann}", status=204)
        assert directory.ask("GET", f"/Groups/{group}").data.get("members") is None
    elif way == "PUT":
        directory.ask("PUT", f"/Users/{ann}", {"schemas": [USER], "userName": "ann", "active": False})
    else:
        directory.patch(f"/Users/{ann}", {"op": "replace", "value": {"active": False}})
    assert directory.facts("ann") == set() and directory.facts("ben") == {MEMBER, "owner x"}
    if way != "DELETE":
        directory.patch(f"/Users/{ann}", {"op": "replace", "value": {"active": True}})
        assert directory.facts("ann") == {MEMBER, WRITER, "group Engineering"}


@pytest.mark.parametrize("more", [{}, {"active": None}])
def test_a_replacement_that_does_not_say_so_lets_nobody_in_again(directory, more):
    ann = directory.user("ann", active=False)
    directory.ask("PUT", f"/Users/{ann}", {"schemas": [USER], "userName": "ann"} | more)
    assert directory.ask("GET", f"/Users/{ann}").data["active"] is False and directory.facts("ann") == set()
    directory.ask("PUT", f"/Users/{ann}", {"schemas": [USER], "userName": "ann", "active": True})
    assert directory.facts("ann") == {MEMBER}


@pytest.mark.parametrize("is_active", [True, False])
def test_another_user_who_gets_a_former_name_inherits_nothing(directory, is_active):
    ann = directory.user("ann", active=is_active)
    owner = {"predicate": "has_role", "args": [
        {"type": "User", "id": "ann"}, {"type": "String", "id": "owner"}, {"type": "Organization", "id": "x"},
    ]}  # fmt: skip
    assert directory.api.post("/facts", owner).status_code == 200
    directory.patch(f"/Users/{ann}", {"op": "replace", "value": {"displayName": "Ann Miller"}})
    given = {MEMBER} if is_active else set()
    assert directory.facts("ann") == given | {"owner x"}
    directory.patch(f"/Users/{ann}", {"op": "replace", "value": {"userName": "anna"}})
    assert directory.facts("ann") == set() and directory.facts("anna") == given
    directory.user("ann")
    assert directory.facts("ann") == {MEMBER}


@pytest.mark.parametrize("way", ["DELETE", "inactive"])
def test_who_lacks_an_attribute_of_the_mapping_can_leave(directory, settings, way):
    settings.SCIM_MAPPING = mapping_of(MAPPING + "  - has_role(User:{externalId}, _, _)\n")
    ann = directory.user("ann")
    if way == "DELETE":
        directory.ask("DELETE", f"/Users/{ann}", status=204)
    else:
        directory.patch(f"/Users/{ann}", {"op": "replace", "path": "active", "value": False})
    assert directory.facts("ann") == set()


MORE = [{"display": "Ann"}, {"type": "User"}, {"$ref": "https://authz.example.org/scim/v2/Users/1"}]


@pytest.mark.parametrize("path", ["members", "Members", f"{GROUP}:members"])
@pytest.mark.parametrize("before, sent", [({}, more) for more in MORE] + [({"display": "Anna"}, {"display": "Ann"})])
def test_a_member_is_removed_by_its_id_whatever_else_is_sent(directory, path, before, sent):
    ann, ben = directory.user("ann"), directory.user("ben")
    group = directory.group("Engineering", ben)
    directory.patch(f"/Groups/{group}", {"op": "add", "path": "members", "value": [{"value": ann} | before]})
    assert WRITER in directory.facts("ann")
    directory.patch(f"/Groups/{group}", {"op": "Remove", "path": path, "value": [{"value": ann} | sent]})
    assert directory.facts("ann") == {MEMBER} and WRITER in directory.facts("ben")


def test_who_is_created_inactive_has_no_facts(directory):
    directory.user("ann", active=False)
    assert directory.facts("ann") == set()


def test_facts_of_an_earlier_mapping_end_with_the_next_change_of_the_user(directory, settings):
    ann = directory.user("ann")
    settings.SCIM_MAPPING = mapping_of("users: ['has_role(User:{id}, \"owner\", Organization:acme)']")
    directory.patch(f"/Users/{ann}", {"op": "replace", "path": "title", "value": "x"})
    assert directory.facts("ann") == set() and directory.facts(ann) == {"owner acme"}


def test_facts_that_the_policy_refuses_change_nothing(directory):
    publish(directory.api.environment.pk, POLICY, None)
    ann = directory.user("ann")
    body = {"schemas": [GROUP], "displayName": "Engineering", "members": [{"value": ann}]}
    answer = directory.ask("POST", "/Groups", body, 400)
    assert "has_relation" in answer.data["detail"] and answer.data["status"] == "400"
    assert directory.facts("ann") == {MEMBER} and ScimResource.objects.count() == 1


HOSTILE = ["a'); DROP TABLE x; --", 'a", "owner', "User:{id}", "\ue002", "_", "*", "é" * 300, "a\u0000b", ""]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_a_value_and_nothing_else(directory, name):
    answer = Client().generic(
        "POST", "/scim/v2/Users", json.dumps({"schemas": [USER], "userName": name}),
        headers={"Authorization": f"Bearer {directory.api.key}"},
    )  # fmt: skip
    facts = directory.api.get("/facts").json()
    if answer.status_code == 201:
        assert [arg["id"] for arg in facts[0]["args"]] == [name, "member", "acme"] and len(facts) == 1
        found = directory.ask("GET", f"/Users?filter=userName eq {json.dumps(name)}").data
        assert found["totalResults"] == 1
    else:
        assert answer.status_code == 400 and facts == [] and not ScimResource.objects.exists()


# ---- as providers send it --------------------------------------------------------------------------------------------


def test_what_okta_sends(directory):
    """From Okta's guide: it looks a user up, creates it, deactivates it, and pushes groups."""
    empty = directory.ask("GET", '/Users?filter=userName eq "test.user@okta.local"&startIndex=1&count=100').data
    assert (empty["totalResults"], empty["itemsPerPage"], empty["startIndex"]) == (0, 0, 1)
    user = directory.ask("POST", "/Users", {
        "schemas": [USER], "userName": "test.user@okta.local", "name": {"givenName": "Test", "familyName": "User"},
        "emails": [{"primary": True, "value": "test.user@okta.local", "type": "work"}], "displayName": "Test User",
        "locale": "en-US", "externalId": "00ujl29u0le5T6Aj10h7", "groups": [], "password": "1mz050nq", "active": True,
    }, 201)  # fmt: skip
    there = f"/Users/{user.data['id']}"
    assert user["Location"].endswith(f"/scim/v2{there}") and "password" not in user.data
    assert "1mz050nq" not in ScimResource.objects.get().resource
    group = directory.group("Engineering")
    patched = directory.patch(
        f"/Groups/{group}", {"op": "replace", "value": {"id": group, "displayName": "Engineering Team"}}
    )
    assert patched.data["displayName"] == "Engineering Team"
    member = {"value": user.data["id"], "display": "test.user@okta.local"}
    directory.patch(f"/Groups/{group}", {"op": "add", "path": "members", "value": [member]})
    assert "group Engineering Team" in directory.facts("test.user@okta.local")
    directory.patch(f"/Groups/{group}", {"op": "remove", "path": f'members[value eq "{user.data["id"]}"]'})
    assert directory.facts("test.user@okta.local") == {MEMBER}
    directory.patch(there, {"op": "replace", "value": {"active": False}})
    assert directory.ask("GET", there).data["active"] is False
    assert directory.facts("test.user@okta.local") == set()


def test_what_entra_sends(directory):
    """From Microsoft's guide, with capitals, strings for booleans, values in removals, and filters that add."""
    user = directory.user(
        "Test_User", externalId="0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef", active=True, roles=[],
        emails=[{"primary": True, "type": "work", "value": "Test_User@testuser.com"}],
        **{"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": {"department": "IT"}},
    )  # fmt: skip
    directory.patch(
        f"/Users/{user}",
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "updated@microsoft.com"},
        {"op": "Replace", "path": "name.familyName", "value": "updated"},
        {"op": "Add", "path": 'phoneNumbers[type eq "mobile"].value', "value": "123"},
    )
    found = directory.ask("GET", f"/Users/{user}").data
    assert found["emails"][0]["value"] == "updated@microsoft.com" and found["phoneNumbers"][0]["value"] == "123"
    group = directory.group("Engineering")
    directory.patch(f"/Groups/{group}", {"op": "Add", "path": "members", "value": [{"$ref": None, "value": user}]})
    assert WRITER in directory.facts("Test_User")
    listed = directory.ask("GET", '/Groups?excludedAttributes=members&filter=displayName eq "engineering"').data
    assert "members" not in listed["Resources"][0]
    directory.patch(f"/Groups/{group}", {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": user}]})
    assert WRITER not in directory.facts("Test_User")
    directory.patch(f"/Users/{user}", {"op": "Replace", "path": "active", "value": "False"})
    assert directory.facts("Test_User") == set()


def test_the_examples_of_the_rfc(directory):
    """RFC 7644, sections 3.3, 3.4.2.2, 3.5.1, 3.5.2."""
    made = directory.ask("POST", "/Users", {
        "schemas": [USER], "userName": "bjensen", "externalId": "bjensen",
        "name": {"formatted": "Ms. Barbara J Jensen III", "familyName": "Jensen", "givenName": "Barbara"},
        "emails": [{"value": "bjensen@example.com", "type": "work"}], "title": "Tour Guide",
    }, 201)  # fmt: skip
    there = f"/Users/{made.data['id']}"
    for text in (
        'userName eq "bjensen"', 'name.familyName co "O\'Malley" or userName sw "bj"', 'title pr',
        'meta.lastModified gt "2011-05-13T04:42:34Z"', 'emails[type eq "work" and value co "@example.com"]',
        'userName eq "BJensen" and not (title eq "x")', f'schemas eq "{USER}"',
    ):  # fmt: skip
        assert directory.ask("GET", f"/Users?filter={text.replace('&', '%26')}").data["totalResults"] == 1, text
    directory.patch(
        there, {"op": "add", "value": {"emails": [{"value": "babs@jensen.org", "type": "home"}], "nickName": "Babs"}}
    )
    directory.patch(there, {"op": "remove", "path": 'emails[type eq "work" and value ew "example.com"]'})
    found = directory.ask("GET", there).data
    assert [each["value"] for each in found["emails"]] == ["babs@jensen.org"] and found["nickName"] == "Babs"
    replaced = directory.ask("PUT", there, {"schemas": [USER], "userName": "bjensen", "externalId": "bjensen"}).data
    assert "nickName" not in replaced and replaced["id"] == made.data["id"]


# ---- the protocol ----------------------------------------------------------------------------------------------------


def test_lists_come_in_pages(directory):
    names = [f"user{number}" for number in range(5)]
    for name in names:
        directory.user(name)
    page = directory.ask("GET", "/Users?startIndex=2&count=2").data
    assert [each["userName"] for each in page["Resources"]] == names[1:3]
    assert (page["totalResults"], page["itemsPerPage"], page["startIndex"]) == (5, 2, 2)
    assert directory.ask("GET", "/Users?count=0").data["totalResults"] == 5
    assert directory.ask("GET", f"/Users?startIndex={10**30}").data["itemsPerPage"] == 0
    assert directory.ask("GET", '/Users?filter=userName sw "user"&startIndex=5').data["itemsPerPage"] == 1


def test_filters_by_name_use_an_index_and_others_search_a_limited_number(directory, monkeypatch):
    ann, ben = directory.user("ann", displayName="ben", externalId="1"), directory.user("ben")
    group = directory.group("ann", ben)
    monkeypatch.setattr(scim, "MOST_SEARCHED", 1)

    def found(path: str) -> list[str]:
        return [each["id"] for each in directory.ask("GET", path).data["Resources"]]

    assert found('/Users?filter=userName eq "ANN"') == found('/Users?Filter=userName eq "ann"') == [ann]
    assert found('/Users?filter=userName eq "ANN"') == found('/Users?filter=externalId eq "1"') == [ann]
    assert found(f'/Groups?filter=id eq "{group}" and members eq "{ben}"') == [group]
    for text in ('displayName eq "ben"', 'userName eq "ann" and title pr or userName eq "ben"', "title pr"):
        assert directory.ask("GET", f"/Users?filter={text}", None, 400).data["scimType"] == "tooMany"
    monkeypatch.setattr(scim, "MOST_SEARCHED", 10)
    assert found('/Users?filter=displayName eq "ben"') == [ann]
    assert found('/Users?filter=userName eq "ann" and title pr or userName eq "ben"') == [ben]
    assert directory.ask("HEAD", "/Users").content == b""


def test_a_text_that_cannot_be_stored_is_found_nowhere_and_refused(directory):
    directory.user("ann")
    for text in (r"\ud800", r"a\u0000"):
        named = quote(f'userName eq "{text}"')
        found = directory.ask("GET", f"/Users?filter={named}")
        assert found.data["totalResults"] == 0
    for name in ("x" * 513, "İ" * 512):  # whose lower case is twice as long
        directory.ask("POST", "/Users", {"schemas": [USER], "userName": name}, 400)


def test_a_resource_that_has_changed_is_not_overwritten(directory):
    there = f"/Users/{directory.user('ann')}"
    tag = directory.ask("GET", there)["ETag"]
    directory.patch(there, {"op": "replace", "path": "title", "value": "x"})
    late = {"schemas": [USER], "userName": "ann"}
    directory.ask("PUT", there, late, 412, **{"If-Match": tag})
    directory.ask("DELETE", there, None, 412, **{"If-Match": tag})
    assert directory.ask("GET", there).data["title"] == "x"
    directory.ask("PUT", there, late, **{"If-Match": directory.ask("GET", there)["ETag"]})


@pytest.mark.parametrize("method, path, body, status, kind", [
    ("POST", "/Users", {"schemas": [USER]}, 400, "invalidValue"),
    ("POST", "/Users", {"schemas": [USER], "userName": "ANN"}, 409, "uniqueness"),
    ("POST", "/Users", {"schemas": [USER], "userName": "b", "externalId": "1"}, 409, "uniqueness"),
    ("POST", "/Users", [], 400, None),
    ("GET", '/Users?filter=userName eq', None, 400, "invalidFilter"),
    ("GET", "/Users/00000000", None, 404, None), ("GET", "/Nothing", None, 404, None),
    ("PATCH", "/Users/ANN", {"schemas": [PATCH], "Operations": [{"op": "x"}]}, 400, "invalidValue"),
    ("PATCH", "/Users/ANN", {"schemas": [PATCH], "Operations": [{"op": "remove"}]}, 400, "noTarget"),
    ("POST", "/Bulk", {}, 404, None), ("DELETE", "/Users", None, 405, None),
])  # fmt: skip
def test_errors_are_those_of_the_protocol(directory, method, path, body, status, kind):
    ann = directory.user("ann", externalId="1")
    answer = directory.ask(method, path.replace("ANN", ann), body, status).data
    assert answer["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"] and answer["status"] == str(status)
    assert kind is None or answer.get("scimType") == kind
    assert ScimResource.objects.count() == 1


def test_keys_need_their_scopes_and_open_one_environment(directory, new_api):
    there = f"/Users/{directory.user('ann')}"
    other = Directory(new_api("other"))
    other.ask("GET", there, status=404)
    other.ask("DELETE", there, status=404)
    other.user("ann")
    for scopes, read, write in (((Scope.READ,), 200, 403), ((Scope.FACTS,), 403, 201), ((Scope.POLICY,), 403, 403)):
        key = Directory(replace(directory.api, key=create_key(directory.api.environment, scopes=scopes)[1]))
        key.ask("GET", "/Users", status=read)
        key.ask("POST", "/Users", {"schemas": [USER], "userName": f"u{write}"}, write)
        for path in ("/Users/.search", "/.search"):
            key.ask("POST", path, {}, 403)
    directory.ask("POST", "/Users/.search", {})
    wrong = Directory(replace(directory.api, key="wrong"))
    assert wrong.ask("GET", "/Schemas", status=401)["WWW-Authenticate"] == "Bearer"


def test_a_server_with_a_mapping_provisions(migrated_urls, tmp_path):
    file = tmp_path / "directory.yaml"
    file.write_text(MAPPING)
    server = start_service(tmp_path, migrated_urls("sqlite", "scim"), "--workers", "1", "--dev", "--scim", str(file))
    try:
        body = {"schemas": [USER], "userName": "ann"}
        key = {"Authorization": f"Bearer {server.client().key}"}
        made = requests.post(f"{server.origin}/scim/v2/Users", json=body, headers=key, timeout=60)
        assert made.status_code == 201 and made.headers["Location"].startswith(f"{server.origin}/scim/v2/Users/")
        left = {"schemas": [PATCH], "Operations": [{"op": "replace", "path": "active", "value": False}]}
        assert server.client().get("/facts").json() != []
        assert requests.patch(made.headers["Location"], json=left, headers=key, timeout=60).status_code == 200
        assert server.client().get("/facts").json() == []
        assert requests.delete(made.headers["Location"], headers=key, timeout=60).status_code == 204
    finally:
        server.stop()


def test_a_wrong_mapping_stops_the_start(tmp_path):
    (tmp_path / "wrong.yaml").write_text("users: ['p(User:ann)']")
    for name, said in (
        ("wrong.yaml", "must name the user"),
        ("none.yaml", "no such file or directory; check"),
    ):
        with pytest.raises((CommandError, AuthzError), match=said):
            scim_mapping(tmp_path / name)


def test_without_a_mapping_there_is_nothing(directory, settings):
    settings.SCIM_MAPPING = None
    directory.ask("GET", "/Users", status=404)


@pytest.mark.parametrize("text, said", [
    ("users: [", "invalid YAML"), ("[]", "must be a map"), ("people: []", "must be a map"),
    ("users: x", "must be a list of facts"), ("groups: []", "must be a map from"),
    ("users: ['p(User:ann)']", "must name the user"), ("left: ['p(_, _)']", "must name the user"),
    ("users: ['p(User:{userName}, _)']", "wildcards"), ("users: ['p(User:{group})']", "{group} may stand"),
    ("users: ['p(User:{mail})']", "only {userName}"), ("users: ['p(']", "`p(`"),
])  # fmt: skip
def test_a_wrong_mapping_is_refused_with_what_is_wrong(text, said):
    with pytest.raises(MappingInvalid, match=re.escape(said)):
        mapping_of(text)
