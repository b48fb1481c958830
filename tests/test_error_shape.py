"""Every endpoint, given every kind of bad body, answers with a message and no server error."""

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from tests.sampling import some, together

pytestmark = pytest.mark.one_database

BAD_BODIES = (
    b"", b"{", b"null", b"0", b'"x"', b"[]", b"{}", b"[null]", b"[[]]", b"[{}]", b'{"a": 1}', b"true", b"[1, 2]",
    b'[{"inserts": 5}]', b'[{"inserts": [{"predicate": "p", "args": [{"type": 1, "id": []}]}]}]',
    b'{"predicate": [], "args": {}}', b'{"query": [], "data_bindings": 5}', b'{"src": 5}', b'{"fact": []}',
    b'{"actor_type": 1, "actor_id": {}, "action": [], "resource_type": null, "resource_id": "\\u0000"}',
)  # fmt: skip


def paths(resolver: URLResolver, prefix: str = "") -> list[str]:
    found = []
    for entry in resolver.url_patterns:
        path = f"{prefix}{entry.pattern}"
        found += [path] if isinstance(entry, URLPattern) else paths(entry, path)
    return found


ENDPOINTS = [path.removeprefix("api") for path in paths(get_resolver()) if path.startswith("api/")]
OPEN = ("/healthcheck", "/openapi.json", "/docs")


@pytest.mark.parametrize("method", some(("POST", "GET", "DELETE", "PUT"), 4))
@together("path", ENDPOINTS)
def test_bad_bodies_are_answered_with_a_message(api, path, method):
    for body in BAD_BODIES:
        answer = api.request(method, path, body)
        assert answer.status_code < 500, (body, answer.content)
        if answer.status_code >= 400:
            assert isinstance(answer.json()["message"], str), (body, answer.content)


@together("path", [path for path in ENDPOINTS if path not in OPEN])
def test_every_endpoint_wants_a_key(api, path):
    for method in ("GET", "POST", "DELETE"):
        answer = api.request(method, path, b"{}", Authorization="Bearer e_default_x_y")
        assert (answer.status_code, set(answer.json())) == (401, {"message"}), path
