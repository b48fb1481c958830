"""What every answer has, right or wrong."""

import gc
import json
import secrets
import uuid
from unittest import mock

import orjson
import pytest
from django.db import OperationalError
from django.test import Client

from authz_project.keys import DEV_KEY
from tests.checks.conftest import about, publish, value

pytestmark = pytest.mark.one_database

ASKED = about("User:ann", "Repo:a", action="read")
SEARCHED = {"subject": value("User:ann"), "action": {"name": "read"}, "resource": value("Repo:a")}


@pytest.mark.parametrize("path", ["/healthcheck", "/api/healthcheck"])
def test_health_needs_neither_key_nor_database(path):
    assert Client().get(path).status_code == 200


def test_the_greeting(api):
    assert set(api.get("/").json()) == {"hello", "api_version"}


def test_what_a_request_brought_is_gone_with_it(api):
    """Without a collection: until one came by, workers would keep many large bodies and answers."""
    marker = f"likes_{secrets.token_hex(8)}"
    context = [{"predicate": marker, "args": [{"type": "User", "id": "ann"}]}]
    body = orjson.dumps(about("User:ann", "Repo:a", action="read", context_facts=context))
    del context
    gc.collect()
    gc.disable()
    try:
        assert api.post("/authorize", body).json() == {"allowed": False}
        kept = [each for each in gc.get_objects() if type(each) is dict and each.get("predicate") == marker]
    finally:
        gc.enable()
    assert kept == []


@pytest.mark.parametrize("given", ["a", "x" * 128, "!~", "6f1c2f60-5b0e-4f0e-9a39-2d2f0c9f7c1e"])
def test_a_request_id_is_sent_back(api, given):
    assert api.get("/facts", **{"X-Request-ID": given})["X-Request-ID"] == given


@pytest.mark.parametrize("given", ["", " ", "a b", "x" * 129, "é", "a\tb"])
def test_another_request_id_is_replaced(api, given):
    new = uuid.UUID(api.get("/facts", **{"X-Request-ID": given})["X-Request-ID"])
    assert (new.version, new.variant) == (4, uuid.RFC_4122)


@pytest.mark.parametrize("path", ["/nope", "/api/nope", "/api/facts/", "/apix", "/api/batch/x", "/static/nope.css"])
@pytest.mark.parametrize("method", ["get", "post", "delete", "put", "options"])
def test_unknown_paths_are_told_in_json(path, method):
    answer = getattr(Client(), method)(path)
    assert (answer.status_code, set(answer.json())) == (404, {"message"})
    assert answer["X-Request-ID"]


def test_a_wrong_method_names_the_right_ones(api):
    answer = api.request("PUT", "/batch", [])
    assert (answer.status_code, set(answer.json())) == (405, {"message"})
    assert "POST" in answer["Allow"]


@pytest.mark.parametrize("body", [b"{", b"[1,]", b"NaN", b"\xff", b'"\\ud800"', b"[" * 100_000, b"{} x"])
def test_a_body_that_is_not_json_is_refused(api, body):
    answer = api.post("/batch", body)
    assert answer.status_code == 400
    assert "JSON" in answer.json()["message"]


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def test_a_body_that_nests_too_deep_is_refused(api):
    """As deep as this, all that is made of it can be written again."""
    publish(api, 'actor User {} resource Repo { permissions = ["read"]; }')
    for path, asked in (("/authorize", ASKED), ("/access/v1/search/resource", SEARCHED)):
        body = orjson.dumps(asked)[:-1] + b',"more":%b}'
        assert api.post(path, body % nested(199)).status_code == 200
        refused = api.post(path, body % nested(200))
        assert (refused.status_code, "deeper than 200 levels" in refused.json()["message"]) == (400, True)
    assert api.post("/authorize", ASKED | {"more": [[]] * 300}).status_code == 200


@pytest.mark.parametrize("kind", ["subject", "action", "resource"])
def test_a_large_search_that_nests_too_deep_is_refused(api, kind):
    body = orjson.dumps(SEARCHED | {"large": "x" * (1 << 20)})[:-1] + b',"more": %b}' % nested(300)
    refused = api.post(f"/access/v1/search/{kind}", body)
    assert (refused.status_code, "nested too deeply" in refused.json()["message"]) == (400, True)


def test_a_body_over_the_limit_is_refused(api, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    assert api.post("/batch", b"[" + b" " * 98 + b"]").status_code == 200
    answer = api.post("/batch", b"[" + b" " * 99 + b"]")
    assert (answer.status_code, "larger than 100 bytes" in answer.json()["message"]) == (413, True)


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_the_content_type_does_not_matter(api, content_type):
    answer = Client().generic("POST", "/api/batch", b"[]", content_type, headers={"Authorization": f"Bearer {api.key}"})
    assert answer.status_code == 200


def test_what_nobody_foresaw_is_told_without_detail(api, caplog):
    with mock.patch("facts.read.stats", side_effect=RuntimeError("SELECT secret FROM stack")):
        answer = api.get("/stats", **{"X-Request-ID": "my-request"})
    assert answer.status_code == 500
    assert "secret" not in answer.content.decode() and "my-request" in answer.json()["message"]
    assert "my-request" in caplog.text


def test_a_database_that_is_down_is_told_as_such(api):
    with mock.patch("facts.read.stats", side_effect=OperationalError("connection refused")):
        answer = api.get("/stats")
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert "refused" not in answer.content.decode()


@pytest.mark.parametrize(("limit", "code", "reason"), [(0.05, 400, "longer than 0.05"), (50, 503, "cancelled")])
@pytest.mark.parametrize("db", ["postgresql"], indirect=True)  # this is how it says so
def test_only_a_statement_that_runs_out_of_time_is_the_callers_to_change(api, db, settings, limit, code, reason):
    from django.db import connection

    settings.STATEMENT_TIMEOUT = limit

    def slow(environment_id: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 50")
            try:
                cursor.execute("SELECT pg_sleep(5)")
            finally:
                cursor.execute("SET statement_timeout TO DEFAULT")

    with mock.patch("facts.read.stats", slow):
        answer = api.get("/stats")
    assert (answer.status_code, reason in answer.json()["message"]) == (code, True)


def test_test_environments_exist_in_development_only(db, settings):
    assert Client(HTTP_HOST="localhost").post("/test_environment").status_code == 404
    settings.DEV_SERVER = True
    token = Client(HTTP_HOST="localhost").post("/test_environment").json()["token"]
    assert token.startswith("e_testenv") and token != DEV_KEY


def test_a_test_environment_can_copy_the_default_one(api, settings):
    fact = {"predicate": "p", "args": [{"type": "T", "id": "x"}]}
    api.post("/facts", fact)
    settings.DEV_SERVER = True

    def facts_of(path: str) -> list:
        client = Client(HTTP_HOST="localhost")
        token = client.post(path).json()["token"]
        return json.loads(client.get("/api/facts", headers={"Authorization": f"Bearer {token}"}).content)

    assert facts_of("/test_environment?copy=true") == [fact]
    assert facts_of("/test_environment") == []
