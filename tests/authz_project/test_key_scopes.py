"""What a key is good for: each endpoint says what it needs, and each statement looks at what the key has now."""

import orjson
import pytest

from authz_project import wsgi
from authz_project.keys import create_key
from authz_project.models import SCOPE_COLUMNS, ApiKey
from authz_project.urls import endpoints
from policy.active import Scope
from tests.authz_project.test_two_ways import Ways
from tests.conftest import Api, whole
from tests.sampling import together
from tests.test_revocation import REQUESTS

NEEDED = {  # of what changes something, and of previews; all else that wants a key but the greeting is reading
    ("POST", "/api/policy"): Scope.POLICY,
    ("POST", "/api/preview_policy"): Scope.POLICY,  # which compiles and runs what it is sent
    ("POST", "/api/batch"): Scope.FACTS,
    ("POST", "/api/facts"): Scope.FACTS,
    ("DELETE", "/api/facts"): Scope.FACTS,
    ("POST", "/api/bulk"): Scope.FACTS,
    ("POST", "/api/bulk_load"): Scope.FACTS,
    ("POST", "/api/bulk_delete"): Scope.FACTS,
    ("POST", "/api/clear_data"): Scope.FACTS,
    ("GET", "/api/follow"): Scope.FOLLOW,  # which sends hashes of keys
}
GREETING = {"/api", "/api/"}


@together("path", sorted(endpoints))
def test_every_endpoint_says_what_it_needs(path):
    endpoint = endpoints[path]
    assert set(endpoint.scopes) == (set(endpoint.handlers) if endpoint.needs_key else set())
    for method, scope in endpoint.scopes.items():
        expected = None if f"/{path}" in GREETING else NEEDED.get((method, f"/{path}"), Scope.READ)
        assert scope == expected, method
        assert method != "GET" or endpoint.scope_of("HEAD") == scope
    assert endpoint.scope_of("PATCH") is None


def test_nothing_is_handled_without_a_word_about_scopes():
    """A handler that its endpoint forgot would fail, and not answer."""
    endpoint = endpoints["api/facts"]
    forgetful = type("Forgetful", (type(endpoint),), {"scopes": {}})()
    with pytest.raises(KeyError):
        forgetful.scope_of("DELETE")


def narrow(api: Api, *scopes: Scope) -> None:
    flags = {column: scope in scopes for scope, column in SCOPE_COLUMNS.items()}
    ApiKey.objects.filter(prefix=api.key.rpartition("_")[0]).update(**flags)


@together("number, request_of", enumerate(REQUESTS))
def test_a_key_without_the_scope_is_refused_and_told_so(new_api, number, request_of):
    """Also where the process has just served it, and was given back what it asks for."""
    api, (method, path, body) = new_api(f"asked{number}"), request_of
    narrowed = Api(api.environment, create_key(api.environment)[1])  # for which it is said below what it is good for
    before = api.post("/authorize", QUESTION).json(), api.get("/facts").json()
    needed = endpoints[whole(path)[1:]].scopes[method]
    narrow(narrowed, *(scope for scope in Scope if scope != needed))
    answer = narrowed.request(method, path, body)
    if needed is None:
        assert answer.status_code == 200
        return
    assert answer.status_code == 403, answer.content
    assert set(answer.json()) == {"message"}
    assert f"lacks the scope `{needed}`" in answer.json()["message"]
    assert f"api_keys create --scope {needed}" in answer.json()["message"]
    assert answer["WWW-Authenticate"] == f'Bearer error="insufficient_scope", scope="{needed}"'
    assert (api.post("/authorize", QUESTION).json(), api.get("/facts").json()) == before
    narrow(narrowed, needed)
    assert narrowed.request(method, path, body).status_code not in (401, 403)
    narrow(narrowed, *(scope for scope in Scope if scope != needed))
    assert narrowed.request(method, path, body).status_code == 403


QUESTION = {"actor_type": "User", "actor_id": "u", "action": "read", "resource_type": "Repo", "resource_id": "r"}
FACT = {"predicate": "p", "args": [{"type": "T", "id": "x"}]}


def test_an_answer_that_is_kept_is_not_given_to_a_key_that_may_not_ask(api):
    for _ in range(3):
        assert api.post("/authorize", QUESTION).status_code == 200
    narrow(api, Scope.FACTS)
    for _ in range(3):
        assert api.post("/authorize", QUESTION).status_code == 403


def test_a_key_that_is_not_good_is_not_told_of_scopes(api):
    narrow(api, Scope.FACTS)
    ApiKey.objects.update(revoked_at="2026-01-01T00:00:00Z")
    for method, path in (("POST", "/authorize"), ("GET", "/facts"), ("POST", "/policy")):
        assert api.request(method, path, QUESTION).status_code == 401


def test_what_is_wrong_with_a_question_is_told_to_those_who_may_ask(api):
    assert api.post("/authorize", {}).status_code == 400
    narrow(api, Scope.FACTS)
    assert api.post("/authorize", {}).status_code == 403


BROKEN = (b"{", b"3", b'[{"x": 1}]', b'{"x": 1}')


@pytest.mark.parametrize("broken", BROKEN)
def test_whoever_may_not_is_told_so_before_what_is_wrong(db, broken):
    """By both ways to an endpoint, and where the process has just served the same key."""
    ways = Ways()
    keys = [Api(None, key) for key in ways.keys]
    for is_revoked, expected in ((False, "403"), (True, "401")):
        for method, path, _ in REQUESTS:
            needed = endpoints[whole(path)[1:]].scopes[method]
            if needed is None:
                continue
            ApiKey.objects.update(revoked_at=None)
            for key in keys:
                narrow(key, *Scope)
            ways.send(method, whole(path), broken, "version=x&after=x&args.7.type=x")
            for key in keys:
                narrow(key, *(each for each in Scope if each != needed))
            if is_revoked:
                ApiKey.objects.update(revoked_at="2026-01-01T00:00:00Z")
            status, _, _ = ways.send(method, whole(path), broken, "version=x&after=x&args.7.type=x")
            assert status[:3] == expected, (method, path)


def test_a_policy_is_refused_as_other_things_are(api):
    narrow(api, Scope.READ, Scope.FACTS)
    answer = api.post("/policy", {"src": "actor User {}"})
    assert (answer.status_code, set(answer.json())) == (403, {"message"})
    assert api.get("/policy").json() == {"policy": None}


def test_both_ways_refuse_alike(db):
    ways = Ways()
    assert wsgi.ROUTES
    for scopes in ((Scope.READ,), (Scope.FACTS,), (Scope.POLICY,), ()):
        for key in ways.keys:
            narrow(Api(None, key), *scopes)
        for method, path, body in REQUESTS:
            status, _, _ = ways.send(method, whole(path), b"" if body is None else orjson.dumps(body))
            needed = endpoints[whole(path)[1:]].scopes[method]
            assert (status[:3] == "403") == (needed is not None and needed not in scopes), (method, path)
            for other in ("HEAD", "OPTIONS", "PATCH"):
                answered, _, _ = ways.send(other, whole(path), b"")
                if (other, method) == ("HEAD", "GET"):
                    assert answered == status, path
