"""A revoked key opens nothing from then on, not even in a process that has just served it."""

import pytest

from authz_project.keys import revoke_key
from authz_project.models import ApiKey
from authz_project.openapi.operations import OPERATIONS
from tests.conftest import whole

VALUE = {"type": "Repo", "id": "r"}
FACT = {"predicate": "has_role", "args": [{"type": "User", "id": "u"}, {"type": "String", "id": "reader"}, VALUE]}
ACTOR = {"actor_type": "User", "actor_id": "u"}
RESOURCE = {"resource_type": "Repo", "resource_id": "r"}
QUERY = {
    "predicate": ["has_role", ["u", "r", "o"]],
    "calls": [],
    "constraints": {name: {"type": kind, "ids": None} for name, kind in zip("uro", ("User", "String", "Repo"))},
    "context_facts": [],
}
EVALUATION = {"subject": {"type": "User", "id": "u"}, "action": {"name": "read"}, "resource": VALUE}
REQUESTS = (
    ("GET", "/", None),
    ("GET", "/facts", None),
    ("GET", "/history", None),
    ("GET", "/stats", None),
    ("GET", "/changes", None),
    ("GET", "/policy", None),
    ("GET", "/policy_metadata", None),
    ("POST", "/policy", {"src": "actor User {}"}),
    ("POST", "/batch", [{"inserts": [FACT]}]),
    ("POST", "/batch", []),
    ("POST", "/facts", FACT),
    ("DELETE", "/facts", FACT),
    ("POST", "/bulk", {"delete": [], "tell": [FACT]}),
    ("POST", "/bulk_load", [FACT]),
    ("POST", "/bulk_delete", [FACT]),
    ("POST", "/clear_data", None),
    ("POST", "/authorize", {**ACTOR, "action": "read", **RESOURCE}),
    ("POST", "/actions", {**ACTOR, **RESOURCE}),
    ("POST", "/bulk_actions", [{**ACTOR, **RESOURCE}]),
    ("POST", "/bulk_actions", []),
    ("POST", "/list", {**ACTOR, "action": "read", "resource_type": "Repo", "page_size": 10_000}),
    ("POST", "/authorize_resources", {**ACTOR, "action": "read", "resources": [VALUE]}),
    ("POST", "/authorize_resources", {**ACTOR, "action": "read", "resources": []}),
    ("POST", "/authorize_each", {"checks": [{"actor": VALUE, "action": "read", "resource": VALUE}] * 2}),
    ("POST", "/authorize_each", {"checks": []}),
    ("POST", "/evaluate_query", QUERY),
    ("POST", "/explain", {**ACTOR, "action": "read", **RESOURCE}),
    ("POST", "/query", {"fact": {"predicate": "has_role", "args": [None, None, None]}}),
    ("POST", "/expect", {"request_id": "x", "expected": True}),
    ("POST", "/access/v1/evaluation", EVALUATION),
    ("POST", "/access/v1/evaluations", EVALUATION | {"evaluations": [{}, {}]}),
    ("POST", "/access/v1/evaluations", {"evaluations": [{}]}),
    ("POST", "/access/v1/search/subject", EVALUATION),
    ("POST", "/access/v1/search/resource", EVALUATION),
    ("POST", "/access/v1/search/action", EVALUATION),
    ("POST", "/authorize_query", {"query": {**ACTOR, "action": "read", **RESOURCE}, "data_bindings": ""}),
    ("POST", "/actions_query", {"query": {**ACTOR, **RESOURCE}, "data_bindings": ""}),
    (
        "POST",
        "/list_query",
        {"query": {**ACTOR, "action": "read", "resource_type": "Repo"}, "column": "id", "data_bindings": ""},
    ),
    (
        "POST",
        "/evaluate_query_local",
        {
            "query": QUERY,
            "data_bindings": "",
            "mode": {"mode": "select", "query_vars_to_output_column_names": {"o": "id"}},
        },
    ),
)


def test_every_endpoint_that_wants_a_key_is_among_them():
    asked = {(method, whole(path)) for method, path, _ in REQUESTS}
    assert {(each.method, each.path) for each in OPERATIONS if each.needs_key} == asked


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_revoked_key_is_refused_by_every_endpoint(api, method, path, body):
    if api.request(method, path, body).status_code in (404, 405) and path != "/policy_metadata":
        pytest.skip("not served")
    revoke_key(ApiKey.objects.get(environment=api.environment))
    answer = api.request(method, path, body)
    assert (answer.status_code, set(answer.json())) == (401, {"message"})
