"""Every request is answered alike by servers and by plain Django: status, headers in order, and bytes."""

import io
import json
import re
import threading
from collections.abc import Iterator
from itertools import count, product
from unittest import mock

import orjson
import pytest
from django.core.exceptions import SuspiciousOperation
from django.db import InterfaceError, OperationalError, connections

from authz_project import wsgi
from authz_project.keys import create_key
from policy.core import memory
from policy.core.memory import NoMemory
from tests.conversation import LONGER_THAN_ALLOWED
from tests.factories import EnvironmentFactory
from tests.service import DEV_KEY, ROOT

CASES = json.loads((ROOT / "tests" / "cases" / "wire.json").read_text())["cases"]
A_NEW_ONE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"oso;dur=\d+\.\d{3}")
OF_ONE = re.compile(rf"{A_NEW_ONE.pattern}|\d{{4}}-\d\d-\d\dT[\d:.]+Z|key \d+")  # ids, times, and names of keys

NEW_FACT = b'{"predicate": "likes", "args": [{"type": "User", "id": "ann"}]}'
pytestmark = pytest.mark.one_database
numbers = count(1)
Answer = tuple[str, list[tuple[str, str]], bytes]


def answered(environ: dict[str, object]) -> Answer:
    """As servers ask it. What is different each time is only looked at."""
    heads: list[tuple[str, list[tuple[str, str]]]] = []
    content = wsgi.application(environ, lambda status, headers: heads.append((status, headers)))
    body = b"".join(content)
    getattr(content, "close", lambda: None)()
    ((status, headers),) = heads
    given = environ.get("HTTP_X_REQUEST_ID")
    return status, [told(name, value, given) for name, value in headers], OF_ONE.sub("its own", body.decode()).encode()


def told(name: str, value: str, request_id: object) -> tuple[str, str]:
    if name == "Server-Timing":
        assert TIME.fullmatch(value)
        return name, "a time"
    if name == "X-Request-ID" and value != request_id:
        assert A_NEW_ONE.fullmatch(value)
        return name, "a new one"
    return name, re.sub(r"nonce-[\w-]+", "nonce", value)


class Ways:
    """Two environments, one for each way, to which all that is sent is sent."""

    def __init__(self):
        self.keys = [create_key(EnvironmentFactory(slug=f"{slug}{next(numbers)}"))[1] for slug in ("short", "whole")]
        self.answers: list[Answer] = []

    def send(self, method: str, path: str, body: bytes = b"", query: str = "", **variables: str) -> Answer:
        answers = []
        for key, routes in zip(self.keys, (wsgi.ROUTES, {})):
            environ = {
                "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, "SERVER_NAME": "x",
                "SERVER_PORT": "80", "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(body),
                "CONTENT_LENGTH": str(len(body)), "HTTP_AUTHORIZATION": f"Bearer {key}",
            }  # fmt: skip
            environ |= {name: value.replace(DEV_KEY, key) for name, value in variables.items()}
            with mock.patch.object(wsgi, "ROUTES", routes):
                answers.append(answered({name: value for name, value in environ.items() if value != "absent"}))
        short, whole = answers
        nonce = re.compile(rb'nonce="[\w-]+"')
        assert short[:2] == whole[:2], (method, path, body[:200])
        if path == "/api/follow" and short[0].startswith("200"):  # it names the environment, its keys and the time
            return short
        assert nonce.sub(b"", short[2]) == nonce.sub(b"", whole[2]), (method, path, short[2][:300])
        return short

    def post(self, path: str, body: object, **variables: str) -> Answer:
        return self.send("POST", f"/api{path}", orjson.dumps(body), **variables)


@pytest.fixture
def ways(db) -> Iterator[Ways]:
    assert wsgi.ROUTES
    return Ways()


# ---- conversations ------------------------------------------------------------------------------------------------


def test_conversations(db):
    for case in CASES:
        converse(Ways(), case)


def converse(ways, case):
    setup = case["setup"]
    if setup.get("policy") is not None:
        ways.post("/policy", {"src": setup["policy"], "filename": ""})
    if setup.get("facts"):
        ways.post("/batch", [{"inserts": setup["facts"]}])
    for step in [case, *case.get("then", [])]:
        request = step["request"]
        path = request["path"] if request.get("absolute_path") else f"/api{request['path']}"
        body = orjson.dumps(request["json"]) if "json" in request else b""
        if "json_generator" in request:
            body = b'"' + b"a" * LONGER_THAN_ALLOWED
        query = "&".join(f"{name}={value}" for name, value in (request.get("query") or {}).items())
        headers = {variable(name): text for name, text in request.get("headers", {}).items()}
        headers.setdefault("HTTP_AUTHORIZATION", "absent")
        status, _, _ = ways.send(request["method"], path, body, query, **headers)
        if path != "/test_environment":  # which is for development
            assert int(status[:3]) == step["expect"]["status"]


def variable(header: str) -> str:
    name = header.upper().replace("-", "_")
    return name if name == "CONTENT_TYPE" else f"HTTP_{name}"


# ---- odd requests ---------------------------------------------------------------------------------------------------

PATHS = [path.removeprefix("/api") for path in wsgi.ROUTES if path.startswith("/api/")]
METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "post", "Nope", "")
KEYS = (
    "absent", "", " ", "Bearer", "Bearer ", "Bearer x", "bearer  {key}  ", "BEARER {key}", "Basic {key}",
    "Digest {key}", "{key}", "Bearer {key} {key}", "Bearer e_default_x_y", f"Bearer {DEV_KEY}x", "Bearer \xff",
    "Bearer \u20ac", "Bearer e_testenv01234567890_a_b",
)  # fmt: skip
BODIES = (
    b"[" * 300 + b"]" * 300,
    b"", b" \n", b"{", b"null", b"0", b"[]", b"{}", b"[{}]", b"\xff", b'"\xc3\xa9"', b'"\\ud800"', b"NaN", b"[" * 2000,
    b'{"a":' * 1100 + b"1" + b"}" * 1100, b'{"actor_type":1,"actor_type":"User"}', b"{} x", b"\xef\xbb\xbf{}",
    '{"actor_type":"Usér","actor_id":"ann","action":"réad","resource_type":"R","resource_id":"\U0001f512"}'.encode(),
    b'{"actor_type":"User","actor_id":"a","action":"b","resource_type":"R","resource_id":"r","resource_id":"s"}',
    b'{"actor_type":"User","actor_id":"a\\u0000","action":"b","resource_type":"R","resource_id":"r"}',
)  # fmt: skip
QUESTION = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Repo", "resource_id": "r"}
FACT = {"predicate": "has_role", "args": [{"type": "User", "id": "ann"}, {"type": "String", "id": "reader"}]}
POLICY = """
actor User {}
resource Repo { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }
"""


def test_every_method(ways):
    for path, method in product(PATHS, METHODS):
        for key in ("Bearer {key}", "absent", "Bearer e_default_x_y"):
            send_with(ways, key, method, f"/api{path}", b"{}")


@pytest.mark.parametrize("path", ["/authorize", "/facts", "/policy", "/nope", "/healthcheck"])
def test_every_way_to_say_the_key(ways, path):
    for key in KEYS:
        for method in ("POST", "GET"):
            send_with(ways, key, method, f"/api{path}", b"[]")


def send_with(ways: Ways, key: str, *request: object) -> Answer:
    return ways.send(*request, HTTP_AUTHORIZATION=key.replace("{key}", DEV_KEY))


def test_every_body(ways):
    for path, body in product(PATHS, BODIES):
        for method in ("POST", "GET", "DELETE"):
            ways.send(method, f"/api{path}", body)


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/", "//api/facts", "///api//facts", "/api/facts/", "/api/Facts", "/api/nope", "/API/facts",
     "/api/facts%2f", "/api/fact\xc3\xa9s", "/api/\xff", "/api/facts\n", "/api/facts\x00", "/api/../api/facts",
     "/api;x/facts", "", "/", "api/facts", "/healthcheck", "/test_environment", "/apix", "/static/x", "/api/facts?x"],
)  # fmt: skip
def test_odd_paths(ways, path):
    for method in ("GET", "POST", "HEAD", "OPTIONS", "DELETE"):
        ways.send(method, path, b"{}")
        ways.send(method, path, HTTP_AUTHORIZATION="absent", QUERY_STRING="absent", CONTENT_LENGTH="absent")


@pytest.mark.parametrize(
    "query",
    ["predicate=has_role", "predicate=%C3%A9&args.0.type=%ff", "a=1&a=2", "predicate", "&&&", "id=1", "id=x", "id=",
     "version=1&id=2", "force=maybe", "force=true&show_suggestions=1", "copy=true", "x=\xff", "a=1;b=2",
     "&".join(f"a{number}=1" for number in range(1001))],
)  # fmt: skip
def test_odd_queries(ways, query):
    for method, path in (("GET", "/facts"), ("GET", "/policy"), ("POST", "/policy"), ("GET", "/policy_metadata")):
        ways.send(method, f"/api{path}", orjson.dumps({"src": POLICY}), query)


@pytest.mark.parametrize(
    "variables",
    [{"CONTENT_TYPE": kind} for kind in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
     "multipart/form-data; boundary=x", "application/json; charset=utf-16", "application/json; charset=zlib", "x*=y")]
    + [{"CONTENT_LENGTH": length} for length in ("absent", "", "0", "5", "x", "-1", "9" * 30, "10485761", "\u0661")]
    + [{"HTTP_X_REQUEST_ID": each} for each in ("mine", "x" * 128, "x" * 129, "", "a b", "\xe9", "a\tb")]
    + [{"HTTP_USER_AGENT": "Oso Cloud (python)"}, {"HTTP_X_OSOAPIVERSION": "0", "HTTP_OSOOFFSET": "3"},
       {"HTTP_ACCEPT": "text/html"}, {"HTTP_ACCEPT": "nonsense"}, {"HTTP_ACCEPT_ENCODING": "gzip"},
       {"HTTP_HOST": "else where"}, {"HTTP_ORIGIN": "https://x.example", "HTTP_COOKIE": "csrftoken=1; sessionid=2"},
       {"HTTP_X_HTTP_METHOD_OVERRIDE": "DELETE"}, {"HTTP_IF_NONE_MATCH": "*"}, {"HTTP_RANGE": "bytes=0-1"},
       {"HTTP_EXPECT": "100-continue"}, {"HTTP_TRANSFER_ENCODING": "chunked"}, {"SCRIPT_NAME": "/below"},
       {"HTTP_X_FORWARDED_PROTO": "https"}],
    ids=lambda variables: "-".join(f"{name}={value[:20]!r}" for name, value in variables.items()),
)  # fmt: skip
def test_odd_headers(ways, variables):
    ways.post("/policy", {"src": POLICY})
    for path, body in (
        ("/authorize", QUESTION),
        ("/list", {**QUESTION, "page_size": 10}),
        ("/list", {**QUESTION, "page_size": 10_000}),
        ("/batch", []),
        ("/expect", {"request_id": "x", "expected": True}),
    ):
        ways.post(path, body, **variables)
    ways.send("GET", "/api/docs", **variables)
    ways.send("GET", "/healthcheck", **variables)


def test_context_facts_without_use_are_told_of(ways):
    ways.post("/policy", {"src": POLICY})
    known = {"predicate": "has_role", "args": [*FACT["args"], {"type": "Repo", "id": "r"}]}
    unknown = {"predicate": "h\u00e4s_role", "args": FACT["args"]}
    for context in ([known], [FACT, known], [{"predicate": "has_rol", "args": known["args"]}], [unknown]):
        status, headers, body = ways.post("/authorize", {**QUESTION, "context_facts": context})
        assert (status, body) == ("200 OK", b'{"allowed":%s}' % (b"true" if known in context else b"false"))
        assert ("X-Unused-Context-Facts" in dict(headers)) == (context != [known])


@pytest.mark.parametrize("source", ["actor", POLICY, POLICY + 'test "t" { assert allow(User:a, "read", Repo:r); }'])
def test_policies(ways, source):
    for query in ("", "force=true", "fail_fast=1", "show_suggestions=1"):
        for body in ({"src": source}, {"src": source, "filename": "a\nb"}):
            ways.send("POST", "/api/policy", orjson.dumps(body), query)


@pytest.mark.parametrize(
    "error",
    [OperationalError("gone"), InterfaceError("gone"), SuspiciousOperation("x"), RuntimeError("SELECT secret"),
     KeyError("x"), RecursionError(), OSError("x"), UnicodeDecodeError("utf-8", b"x", 0, 1, "x")],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("place", ["facts.read.stats", "authz_project.route.caller_of_token"])
def test_what_is_raised_inside(ways, place, error):
    with mock.patch(place, side_effect=error):
        status, _, body = ways.send("GET", "/api/stats", HTTP_X_REQUEST_ID="mine")
    assert int(status[:3]) >= 400 and b"secret" not in body


@pytest.mark.parametrize("error", [OperationalError("gone"), InterfaceError("gone")], ids=repr)
def test_what_is_raised_while_a_refusal_is_confirmed(ways, error):
    ways.post("/authorize", QUESTION)
    with mock.patch("policy.endpoint.caller", side_effect=error):
        status, _, _ = ways.post("/authorize", {})
    assert status == "503 Service Unavailable"


@pytest.mark.parametrize("error", [OSError("reset"), OperationalError("gone")], ids=repr)
def test_a_body_that_cannot_be_read(ways, error):
    class Broken(io.BytesIO):
        def read(self, *size: int) -> bytes:
            raise error

    with mock.patch("tests.authz_project.test_two_ways.io.BytesIO", Broken):
        for path in ("/batch", "/authorize", "/clear_data", "/nope"):
            ways.send("POST", f"/api{path}", b"[]")


def test_what_cannot_be_written_is_our_mistake(ways, caplog):
    """The one answer that is not alike to the byte: the framework's way ends outside of any endpoint."""
    environ = {
        "REQUEST_METHOD": "GET", "PATH_INFO": "/api/stats", "QUERY_STRING": "", "HTTP_X_REQUEST_ID": "mine",
        "HTTP_AUTHORIZATION": f"Bearer {ways.keys[0]}", "wsgi.input": io.BytesIO(),
    }  # fmt: skip
    with mock.patch("facts.read.stats") as stats:
        stats.return_value.roles = object()
        status, headers, body = answered(environ)
    assert (status, dict(headers)["X-Request-ID"]) == ("500 Internal Server Error", "mine")
    assert "mine" in json.loads(body)["message"] and "mine" in caplog.text


# ---- what is done around a request ----------------------------------------------------------------------------------


def test_a_connection_that_errors_left_unusable_is_let_go(ways):
    from django.db import connection

    ways.send("GET", "/api/stats")
    raw = connection.connection
    for routes in (wsgi.ROUTES, {}):
        with mock.patch.object(wsgi, "ROUTES", routes), mock.patch.object(connection, "is_usable", return_value=False):
            connection.errors_occurred = True
            environ = {
                "REQUEST_METHOD": "GET", "PATH_INFO": "/healthcheck", "SERVER_NAME": "x", "SERVER_PORT": "80",
                "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(), "QUERY_STRING": "",
            }  # fmt: skip
            answered(environ)
        assert connection.connection is None and raw is not None
        connection.ensure_connection()


@pytest.mark.parametrize(("method", "body", "status"), [("GET", b"", "503"), ("POST", NEW_FACT, "200")])
def test_without_memory_to_write_it_an_answer_is_refused_and_a_change_that_is_made_is_not(ways, method, body, status):
    environ = {
        "REQUEST_METHOD": method, "PATH_INFO": "/api/facts", "QUERY_STRING": "", "CONTENT_LENGTH": str(len(body)),
        "HTTP_AUTHORIZATION": f"Bearer {ways.keys[0]}", "wsgi.input": io.BytesIO(body),
    }  # fmt: skip
    with mock.patch.object(memory, "demand_to_write", side_effect=NoMemory):
        assert answered(environ)[0].startswith(status)


def test_a_connection_belongs_to_its_thread(db):
    """Also after an upgrade of Django, in whose storage of connections `wsgi` takes part."""
    mine, others = connections["default"], []
    thread = threading.Thread(target=lambda: others.append(connections["default"]))
    thread.start()
    thread.join()
    assert isinstance(connections._connections, threading.local)
    assert connections["default"] is mine and others[0] is not mine
