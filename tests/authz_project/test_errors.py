"""Whatever goes wrong, wherever: a message in JSON, with the right status, a request id, and a log worth reading."""

import io
import json
import logging
from unittest import mock

import pytest
from django.core.exceptions import SuspiciousOperation
from django.db import OperationalError
from django.test import Client

from authz_project import route
from authz_project.log_formats import OncePerSecond
from authz_project.wsgi import _plain, application

pytestmark = pytest.mark.one_database


def ask(method: str, path: str, query: str = "", body: bytes = b"[]", **variables: str):
    """By the way that servers take, where nothing is prepared by a test client."""
    head = {}
    answered = application(
        {
            "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, "SERVER_NAME": "x", "SERVER_PORT": "80",
            "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body), "wsgi.url_scheme": "http", **variables,
        },
        lambda status, headers: head.update(headers, status=int(status[:3])),
    )  # fmt: skip
    return head, b"".join(answered)


@pytest.mark.parametrize("path", ["/healthcheck", "/api/batch", "/api/facts", "/nope", "/static/x", "/admin/login/"])
@pytest.mark.parametrize(
    "parameter",
    ["charset=zlib", "charset=rot13", "charset=base64", "charset=undefined", "charset=idna", "charset=utf-16",
     "charset", "charset=punycode", "charset=" + "a" * 5000, "x*=nope''y", "x*=undefined''%ff",
     "charset*=zlib''x", "boundary="],
)  # fmt: skip
def test_no_content_type_is_taken_for_how_addresses_are_written(db, path, parameter):
    for kind in ("application/json", "multipart/form-data"):
        head, body = ask("GET", path, "a=%ff&b=1", CONTENT_TYPE=f"{kind}; {parameter}")
        assert head["status"] in (200, 401, 404, 405), body
        assert head["X-Request-ID"]


def test_forms_keep_their_boundary():
    assert _plain('multipart/form-data; charset=zlib; boundary="a b"; x=y') == 'multipart/form-data; boundary="a b"'
    assert _plain("multipart/form-data;boundary=ab;x=y") == "multipart/form-data; boundary=ab"


@pytest.mark.parametrize("path", ["/facts", "/policy"])
def test_more_parameters_than_anybody_needs_are_refused(api, path):
    answer = api.get(path + "?" + "&".join(f"a{number}=1" for number in range(1500)))
    assert (answer.status_code, "1,000 parameters" in answer.json()["message"]) == (400, True)


def test_a_length_of_many_digits_is_too_large(db):
    head, body = ask("POST", "/api/batch", CONTENT_LENGTH="9" * 5000)
    assert (head["status"], set(json.loads(body))) == (413, {"message"})


def test_a_range_that_is_not_there_is_told(db):
    head, body = ask("GET", "/static/admin/css/base.css", HTTP_RANGE="bytes=99999999-")
    assert (head["status"], set(json.loads(body))) == (416, {"message"})


@pytest.mark.parametrize(
    ("error", "status"),
    [(SuspiciousOperation("x"), 400), (OperationalError("gone"), 503), (RuntimeError("x"), 500), (KeyError("x"), 500)],
)
@pytest.mark.parametrize(
    "place",
    ["facts.read.stats", "authz_project.route.caller_of_token", "authz_project.route.View.dispatch",
     "whitenoise.middleware.WhiteNoiseMiddleware.__call__", "authz_project.middleware.AdminLogins.__call__"],
)  # fmt: skip
def test_every_place_where_something_fails_answers_by_the_table(api, place, error, status):
    with mock.patch(place, side_effect=error):
        answer = api.get("/stats")
    assert answer.status_code == status, place
    assert set(answer.json()) == {"message"} and answer["X-Request-ID"], place


def test_the_admin_says_when_the_database_is_away(db):
    with mock.patch("django.contrib.auth.views.LoginView.get", side_effect=OperationalError("gone")):
        answer = Client(raise_request_exception=False).get("/admin/login/")
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert "The database is unreachable" in answer.content.decode()


def test_a_database_that_is_away_is_one_line_a_second(api, caplog, monkeypatch):
    moment = [1000.0]
    monkeypatch.setattr(route, "_once", OncePerSecond())
    monkeypatch.setattr(route.time, "monotonic", lambda: moment[0])
    gone = OperationalError("connection failed:\n\tIs the server running?")
    with mock.patch("facts.read.stats", side_effect=gone), caplog.at_level(logging.WARNING):
        for _ in range(50):
            assert api.get("/stats").status_code == 503
        moment[0] += 1.5
        api.get("/stats")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2 and all("\n" not in line for line in lines), lines
    assert "Is the server running?" in lines[0] and "(and 49 more)" in lines[1]
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("path", ["/healthcheck", "/api/facts", "/api/docs", "/admin/login/", "/nope", "/api/policy"])
def test_every_answer_has_what_browsers_heed(db, path):
    head, _ = ask("GET", path)
    assert (head["X-Content-Type-Options"], head["Referrer-Policy"]) == ("nosniff", "same-origin")
