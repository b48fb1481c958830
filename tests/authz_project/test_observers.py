"""Observers are told of each request once it is answered, alike on both ways to an endpoint."""

import io
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from unittest import mock

import orjson
import pytest

from authz_project import observers, wsgi
from authz_project.observers import AnsweredRequest
from policy.core import spans
from tests.conftest import Api

pytestmark = pytest.mark.one_database

POLICY = 'actor User {}\nresource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }'
QUESTION = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc", "resource_id": "a"}
READER = {
    "predicate": "has_role",
    "args": [{"type": "User", "id": "ann"}, {"type": "String", "id": "reader"}, {"type": "Doc", "id": "a"}],
}


class Observed(list[AnsweredRequest]):
    def __call__(self, seen: AnsweredRequest) -> None:
        self.append(seen)

    def parts(self, name: str) -> list[dict]:
        return [dict(part.facts) for seen in self for part in seen.parts if part.name == name]


@pytest.fixture
def seen() -> Iterator[Observed]:
    observer = Observed()
    observers.observe(observer)
    yield observer
    observers.stop(observer)


@pytest.fixture(params=["short", "whole"])
def way(request, api) -> Iterator[Api]:
    """The way that requests go."""
    with mock.patch.object(wsgi, "ROUTES", wsgi.ROUTES if request.param == "short" else {}):
        yield api


def send(api: Api, method: str, path: str, body: object = None, **variables: str) -> int:
    text = b"" if body is None else orjson.dumps(body)
    environ = {
        "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "x", "SERVER_PORT": "80",
        "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(text), "CONTENT_LENGTH": str(len(text)),
        "HTTP_AUTHORIZATION": f"Bearer {api.key}", **variables,
    }  # fmt: skip
    statuses: list[str] = []
    content = wsgi.application(environ, lambda status, headers: statuses.append(status))
    b"".join(content)
    getattr(content, "close", lambda: None)()
    return int(statuses[0][:3])


def published(api: Api) -> Api:
    assert send(api, "POST", "/api/policy", {"src": POLICY}) == 200
    return api


def test_a_request_is_told_with_who_asked_and_how_long_it_took(way, seen):
    send(way, "GET", "/api/stats", HTTP_X_REQUEST_ID="mine", HTTP_TRACEPARENT="00-1-2-01")
    (told,) = seen
    assert (told.endpoint, told.method, told.status) == ("/api/stats", "GET", 200)
    assert (told.request_id, told.traceparent) == ("mine", "00-1-2-01")
    assert told.environment == way.environment.slug and isinstance(told.key_id, int)
    assert 0 < told.seconds < 60
    assert way.key not in repr(seen)


def test_the_caller_is_known_of_the_second_request_too(way, seen):
    for _ in range(2):
        send(way, "GET", "/api/stats")
    assert seen[0].key_id == seen[1].key_id is not None


@pytest.mark.parametrize(
    "method, path, endpoint, status",
    [
        ("GET", "/healthcheck", "/healthcheck", 200),
        ("GET", "/api/authorize", "/api/authorize", 405),
        ("PURGE", "/api/authorize", "/api/authorize", 405),
        ("GET", "/admin/login/", "admin", 200),
        ("GET", "/docs/", "docs", 200),
        ("GET", "/docs/../nowhere", "docs", 404),
        ("GET", "/api/nowhere", "other", 404),
        ("GET", "/static/nowhere.js", "static", 404),
        ("GET", "/User:ann", "other", 404),
        ("GET", "", "other", 200),
    ],
)
def test_names_are_few(way, seen, method, path, endpoint, status):
    assert send(way, method, path) == status
    (told,) = seen
    assert (told.endpoint, told.status) == (endpoint, status)
    assert told.method in {"GET", "_OTHER"}


def test_a_stranger_is_nobody(way, seen):
    assert send(way, "GET", "/api/stats", HTTP_AUTHORIZATION="Bearer nonsense") == 401
    (told,) = seen
    assert (told.status, told.environment, told.key_id) == (401, "", None)


def test_a_question_is_told_in_parts(way, seen):
    published(way)
    send(way, "POST", "/api/facts", READER)
    seen.clear()
    for _ in range(3):
        assert send(way, "POST", "/api/authorize", QUESTION) == 200
    names = [part.name for part in seen[0].parts]
    assert "compile" in names and "statement" in names and "decision" in names
    assert seen.parts("decision") == [{"allowed": 1, "denied": 0}] * 3
    assert len(seen.parts("compile")) == 1
    assert len(seen.parts("found") + seen.parts("kept")) == 2
    for told in seen:
        ends = [part.began + part.seconds for part in told.parts if part.seconds]
        assert ends == sorted(ends) and ends[-1] <= told.began + told.seconds


def test_a_change_is_told_with_what_it_did(way, seen):
    published(way)
    seen.clear()
    send(way, "POST", "/api/batch", [{"inserts": [READER]}, {"deletes": [READER]}])
    assert seen.parts("change") == [{"entries": 2}]
    assert [each["kind"] for each in seen.parts("revision")] == ["facts"]
    assert seen.parts("commit") == [{"changes": 1}]


def test_what_was_refused_has_no_revision(way, seen):
    published(way)
    seen.clear()
    assert send(way, "POST", "/api/facts", {"predicate": "is_odd", "args": [{"type": "User", "id": "a"}]}) == 400
    assert seen.parts("revision") == []


def test_a_statement_that_fails_is_told(way, seen):
    published(way)
    seen.clear()
    with mock.patch("checks.asking.run._driver", side_effect=ValueError):
        assert send(way, "POST", "/api/authorize", QUESTION) == 500
    assert {"failed": "ValueError"} in seen.parts("statement")


@pytest.mark.parametrize(("least", "times"), [(3600.0, 0), (0.000_001, 1)])
def test_an_observer_of_what_takes_long_is_told_of_nothing_else(way, least, times):
    told: list[AnsweredRequest] = []
    observers.observe(told.append, least)
    try:
        assert send(way, "GET", "/api/stats") == 200
        assert spans._thread.parts is None  # the request is over for those who note
        alone = len(told)
        observers.observe(all_of := Observed())
        assert send(way, "GET", "/api/stats") == 200
    finally:
        observers.stop(told.append)
        observers.stop(all_of)
    assert (alone, len(told), len(all_of)) == (times, 2 * times, 1)


def test_an_observer_that_fails_harms_nobody(way, seen):
    def fail(told: AnsweredRequest) -> None:
        raise ValueError(told.endpoint)

    observers.observe(fail)
    try:
        assert send(way, "GET", "/api/stats") == 200
    finally:
        observers.stop(fail)


def test_nothing_is_noted_while_nobody_observes(way):
    published(way)
    heard = []

    def hear(*_: object, **__: object) -> None:
        heard.append(threading.get_ident())  # others may end what they began while somebody observed

    places = [(spans, "note"), (spans, "add"), (spans, "fetched"), (observers, "tell")]
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(mock.patch.object(*place, hear))
        send(way, "POST", "/api/authorize", QUESTION)
    assert threading.get_ident() not in heard


def test_what_belongs_to_no_request_is_told_to_those_who_listen(way, seen):
    heard: list[spans.Part] = []
    spans.listen((heard.append,))
    try:
        spans.note("load", kind="x")
    finally:
        spans.listen(())
    assert [part.name for part in heard] == ["load"] and not seen


def test_parts_of_another_thread_come_to_the_request(seen):
    first = spans.begin(spans.now())
    parts = spans.begin(spans.now())
    spans.of_request(first, lambda: spans.note("commit", changes=1))
    assert parts == [] and [name for name, *_ in first if name == "commit"] == ["commit"]
    spans.end()
