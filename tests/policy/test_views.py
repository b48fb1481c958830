"""The policy's endpoints: exact codes, keys and headers."""

import pytest

from authz_project.keys import revoke_key
from authz_project.models import ApiKey
from policy import publishing
from policy.models import PolicyVersion
from tests.policy.test_publishing import OTHER, POLICY, TESTED, tests_fail, tests_pass  # noqa: F401  fixtures
from tests.yardstick import seconds_at_most

pytestmark = pytest.mark.one_database

GENERIC = {"error_type", "message"}


def post(api, src: object, query: str = "", filename: object = ""):
    return api.post(f"/policy{query}", {"src": src, "filename": filename})


# ---- POST /policy ----------------------------------------------------------------------------------------


def test_a_policy_is_replaced(api):
    answer = post(api, POLICY)
    assert (answer.status_code, answer.json()) == (200, {"message": "policy version 1 is active"})
    assert int(answer["OsoOffset"]) > 0


def test_an_unchanged_policy_is_accepted_with_another_code(api):
    first = post(api, POLICY)
    again = post(api, POLICY, filename="other.polar")
    assert (again.status_code, set(again.json())) == (202, {"message"})
    assert again["OsoOffset"] == first["OsoOffset"]


@pytest.mark.parametrize("body", [{"src": POLICY}, {"src": POLICY, "filename": None}, {"src": POLICY, "more": 1}])
def test_a_filename_need_not_be_given(api, body):
    assert api.post("/policy", body).status_code == 200
    assert api.get("/policy").json() == {"policy": {"src": POLICY, "filename": None}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "src: this field is required"),
        ({"src": None}, "src: this field may not be null"),
        ({"src": 5}, "src: must be a string"),
        ({"src": ["actor User {}"]}, "src: must be a string"),
        ({"src": "", "filename": 5}, "filename: must be a string"),
        ({"src": "", "filename": "a\nb"}, "filename: must not contain control characters"),
        ({"src": "", "filename": "a" * 1001}, "filename: must not be longer than 1000 characters"),
        ([], "the request body must be an object"),
        (None, "src: this field is required"),
        (b"null", "no data provided"),
        ("text", "the request body must be an object"),
    ],
)
def test_a_malformed_body_is_a_generic_error(api, body, message):
    answer = api.post("/policy", body)
    assert (answer.status_code, answer.json()) == (400, {"error_type": "Generic", "message": message})
    assert "OsoOffset" not in answer


def test_a_body_that_is_not_json_is_a_generic_error(api):
    answer = api.post("/policy", b"actor User {}")
    assert (answer.status_code, set(answer.json()), answer.json()["error_type"]) == (400, GENERIC, "Generic")


def test_a_flag_that_is_no_boolean_is_refused(api):
    answer = post(api, POLICY, "?force=perhaps")
    assert (answer.status_code, answer.json()["error_type"]) == (400, "Generic")
    assert answer.json()["message"].startswith("force: ")
    assert api.get("/policy").json() == {"policy": None}


def test_problems_are_told_with_their_places(api):
    answer = post(api, "actor User {}\nresource Folder extends Nothing {}\n", filename="main.polar")
    body = answer.json()
    assert (answer.status_code, set(body)) == (400, {"error_type", "message", "errors"})
    assert body["error_type"] == "Validation"
    assert [set(error) for error in body["errors"]] == [{"error_type", "message"}]
    assert body["errors"][0]["error_type"] == "ValidationFailed"
    assert body["errors"][0]["message"].startswith("main.polar:2:25: ")
    assert body["message"] == body["errors"][0]["message"]


def test_every_problem_is_told(api):
    body = post(api, "actor User { relations = { a: Nix, b: Nada }; }").json()
    assert len(body["errors"]) == 2
    assert body["message"] == "\n".join(error["message"] for error in body["errors"])


def test_failing_tests_are_told_one_by_one(api, tests_fail):  # noqa: F811
    answer = post(api, TESTED)
    body = answer.json()
    assert (answer.status_code, set(body)) == (400, {"error_type", "message", "test_results"})
    assert body["error_type"] == "TestsFailed"
    assert body["test_results"] == {
        "success": False,
        "errors": [{"error_type": "AssertionFailed", "message": "test `viewers view`, line 9: expected a result"}],
        "tests": [{"name": "viewers view", "passed": 0, "total": 1}],
    }
    assert api.get("/policy").json() == {"policy": None}


def test_force_overrides_failing_tests_and_nothing_else(api, tests_fail):  # noqa: F811
    assert post(api, TESTED, "?force=true&show_suggestions=false&fail_fast=false").status_code == 200
    assert post(api, "resource {", "?force=true").json()["error_type"] == "Validation"


def test_suggestions_are_shown_when_asked_for(api):
    doubtful = POLICY + "p(x: User) if q(x, y);\n"
    assert "warn" not in post(api, doubtful).json()["message"]
    message = post(api, doubtful + "#\n", "?show_suggestions=true").json()["message"]
    assert len(message.splitlines()) > 1
    assert "policy:8:" in message


@pytest.mark.parametrize(
    "text",
    ["x" * 1_500_000, "(" * 500_000, "actor User {}\np() if " + "not " * 100_000 + "q();", '"' * 900_000],
    ids=["long", "parentheses", "nots", "quotes"],
)
def test_a_hostile_policy_is_refused_soon(api, text):
    with seconds_at_most(2):
        answer = post(api, text)
    assert (answer.status_code, answer.json()["error_type"]) == (400, "Validation")
    assert len(answer.content) < 20_000


def test_a_revoked_key_publishes_nothing(api):
    assert api.get("/policy").status_code == 200
    revoke_key(ApiKey.objects.get())
    answer = post(api, POLICY)
    assert (answer.status_code, set(answer.json())) == (401, {"message"})
    assert not PolicyVersion.objects.exists()


def test_a_key_revoked_while_the_policy_is_compiled_publishes_nothing(api, monkeypatch):
    drafted = publishing.draft

    def revoking(*args, **options):
        revoke_key(ApiKey.objects.get())
        return drafted(*args, **options)

    monkeypatch.setattr(publishing, "draft", revoking)
    assert post(api, POLICY).status_code == 401
    assert not PolicyVersion.objects.exists()


# ---- GET /policy -----------------------------------------------------------------------------------------


def test_no_policy_is_null(api):
    answer = api.get("/policy")
    assert (answer.status_code, answer.json()) == (200, {"policy": None})


@pytest.mark.parametrize("filename", ["", None, "main.polar", "Ordner/ä.polar"])
def test_the_policy_is_told_as_it_was_sent(api, filename):
    text = "# Grüße, 世界\r\n" + POLICY
    post(api, text, filename=filename)
    assert api.get("/policy").json() == {"policy": {"src": text, "filename": filename}}


def test_earlier_versions_are_told_by_number(api, new_api):
    for text in (POLICY, OTHER):
        post(api, text)
    assert api.get("/policy").json()["policy"]["src"] == OTHER
    assert api.get("/policy?id=1").json() == {"policy": {"src": POLICY, "filename": ""}}
    assert api.get("/policy?id=2").json()["policy"]["src"] == OTHER
    unknown = api.get("/policy?id=3")
    assert unknown.status_code == 404
    assert unknown.json() == {"message": "policy version 3 does not exist; the latest is 2"}
    assert new_api("other").get("/policy?id=1").status_code == 404


@pytest.mark.parametrize("number", ["", "x", "-1", "1.0", "9" * 30, "²", "1%00"])
def test_a_version_is_a_number(api, number):
    answer = api.get(f"/policy?id={number}")
    assert (answer.status_code, set(answer.json())) == (400, {"message"})


# ---- GET /policy_metadata --------------------------------------------------------------------------------


def test_there_is_no_metadata_without_a_policy(api):
    answer = api.get("/policy_metadata")
    assert (answer.status_code, answer.json()) == (404, {"message": "no policy has been published"})


def test_metadata_is_of_the_active_policy(api):
    folder = {"roles": ["owner", "viewer"], "permissions": ["view"], "relations": {}}
    nothing = {"roles": [], "permissions": [], "relations": {}}
    post(api, POLICY)
    answer = api.get("/policy_metadata")
    assert answer.status_code == 200
    assert answer.json() == {"metadata": {"resources": {"Folder": folder, "User": nothing, "global": nothing}}}
    post(api, OTHER)
    assert "Document" in api.get("/policy_metadata").json()["metadata"]["resources"]


def test_metadata_is_of_the_version_that_is_named(api, new_api):
    post(api, POLICY)
    post(api, OTHER)
    expected = {"version=1": "Folder", "id=1": "Folder", "version=2": "Document", "id=2&version=2": "Document"}
    for query, known in expected.items():
        assert known in api.get(f"/policy_metadata?{query}").json()["metadata"]["resources"], query
    missing = api.get("/policy_metadata?version=3")
    assert missing.status_code == 404
    assert missing.json() == {"message": "policy version 3 does not exist; the latest is 2"}
    assert new_api("other").get("/policy_metadata?version=1").status_code == 404


@pytest.mark.parametrize("query", ["version=", "version=x", "id=-1", "version=1.0", f"id={'9' * 30}", "id=1&version=2"])
def test_what_names_no_version_is_refused(api, query):
    post(api, POLICY)
    post(api, OTHER)
    answer = api.get(f"/policy_metadata?{query}")
    assert (answer.status_code, set(answer.json())) == (400, {"message"})
    assert answer.json()["message"].split(":")[0] in ("version", "id", "version and id")


# ---- facts -----------------------------------------------------------------------------------------------


def user(name: str) -> dict:
    return {"type": "User", "id": name}


def fact(predicate: str, *args: dict) -> dict:
    return {"predicate": predicate, "args": list(args)}


VIEWER, FOLDER = {"type": "String", "id": "viewer"}, {"type": "Folder", "id": "f"}


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (fact("has_rol", user("ann"), VIEWER, FOLDER), "did you mean `has_role`?"),
        (fact("has_role", user("ann"), VIEWER, {"type": "Foldr", "id": "f"}), "did you mean `Folder`?"),
        (fact("has_role", user("ann"), VIEWER), "accepted: `has_role("),
        (fact("something", user("ann")), "the fact `something(User)` is not used in policy"),
    ],
)
@pytest.mark.parametrize("path", ["/batch", "/facts", "/bulk", "/bulk_load"])
def test_facts_are_checked_wherever_they_are_inserted(api, path, wrong, hint):
    post(api, POLICY)
    right = fact("has_role", user("ann"), VIEWER, FOLDER)
    bodies = {
        "/batch": ([{"inserts": [right, wrong]}], "[0].inserts[1]: "),
        "/facts": (wrong, ""),
        "/bulk": ({"delete": [], "tell": [right, wrong]}, "tell[1]: "),
        "/bulk_load": ([right, wrong], "[1]: "),
    }
    body, place = bodies[path]
    answer = api.post(path, body)
    assert answer.status_code == 400
    message = answer.json()["message"]
    assert message.startswith(f"{place}the fact `") and "` is not used in policy" in message and hint in message
    assert api.get("/facts").json() == []
