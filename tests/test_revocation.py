"""A revoked key opens nothing from then on, not even in a process that has just served it."""

from authz_project.keys import revoke_key
from authz_project.models import ApiKey
from tests.contract import OPERATIONS
from tests.sampling import together

ACTOR = {"actor_type": "User", "actor_id": "u"}
REQUESTS = (
    *((each.method, each.path, each.example.get("body")) for each in OPERATIONS if each.needs_key),
    # What asks or changes nothing must confirm the key as well.
    ("POST", "/batch", []),
    ("POST", "/bulk_actions", []),
    ("POST", "/authorize_resources", {**ACTOR, "action": "read", "resources": []}),
    ("POST", "/authorize_each", {"checks": []}),
    ("POST", "/access/v1/evaluations", {"evaluations": [{}]}),
)


@together("number, request_of", enumerate(REQUESTS))
def test_a_revoked_key_is_refused_by_every_endpoint(new_api, number, request_of):
    api, (method, path, body) = new_api(f"asked{number}"), request_of
    assert api.request(method, path, body).status_code not in (401, 405)
    revoke_key(ApiKey.objects.get(environment=api.environment))
    answer = api.request(method, path, body)
    assert (answer.status_code, set(answer.json())) == (401, {"message"})
