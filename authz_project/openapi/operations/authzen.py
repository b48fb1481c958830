"""Operations of AuthZEN, the Authorization API 1.0 of the OpenID Foundation."""

from authz_project.openapi.operation import Example, Group, Operation
from policy.json_schema import Schema, ref

SUBJECT = {"type": "User", "id": "ann"}
ANVIL = {"type": "Repository", "id": "anvil"}
READS: dict[str, object] = {"subject": SUBJECT, "action": {"name": "read"}, "resource": ANVIL}
_EITHER: Schema = {"anyOf": [ref("Evaluated"), ref("EvaluatedMany")]}
_BASE = "…"  # where the service is
_ENDPOINTS = {
    "access_evaluation_endpoint": "evaluation",
    "access_evaluations_endpoint": "evaluations",
    "search_subject_endpoint": "search/subject",
    "search_resource_endpoint": "search/resource",
    "search_action_endpoint": "search/action",
}

GROUP = Group(
    "AuthZEN",
    "The Authorization API 1.0 of the OpenID Foundation: the same questions in its words. A property is a context fact "
    "whose predicate is the property's name; what the policy has no use for is ignored. Requests are "
    "`application/json`.",
    (
        Operation(
            "POST",
            "/access/v1/evaluation",
            "May the subject do the action on the resource?",
            ref("Evaluated"),
            Example({"decision": True}, READS),
            description="With `options.explain` it says why.",
            body=ref("Evaluation"),
            is_dated=True,
        ),
        Operation(
            "POST",
            "/access/v1/evaluations",
            "Which of these evaluations are allowed?",
            _EITHER,
            Example(
                {"evaluations": [{"decision": True}, {"decision": False}]},
                {
                    "subject": SUBJECT,
                    "action": {"name": "read"},
                    "resource": ANVIL,
                    "evaluations": [{}, {"action": {"name": "delete"}}],
                },
            ),
            description="What an evaluation leaves out, it has from the members beside them. One that is wrong is not "
            "allowed, and says why. Without `evaluations` it is one evaluation.",
            body=ref("Evaluations"),
            is_dated=True,
        ),
        Operation(
            "POST",
            "/access/v1/search/subject",
            "Who may do the action on the resource?",
            ref("FoundEntities"),
            Example(
                {"results": [{"type": "User", "id": "ann"}, {"type": "User", "id": "ben"}]},
                READS | {"subject": {"type": "User"}},
            ),
            description="Complete. `*` as an id stands for every one.",
            body=ref("SubjectSearch"),
            is_dated=True,
        ),
        Operation(
            "POST",
            "/access/v1/search/resource",
            "On which resources may the subject do the action?",
            ref("FoundEntities"),
            Example(
                {
                    "results": [{"type": "Repository", "id": "anvil"}, {"type": "Repository", "id": "hammer"}],
                    "page": {"next_token": "", "count": 2},
                },
                READS | {"resource": {"type": "Repository"}, "page": {"limit": 100}},
            ),
            description="Complete, in pages where a page is asked for. `*` as an id stands for every one.",
            body=ref("ResourceSearch"),
            is_dated=True,
        ),
        Operation(
            "POST",
            "/access/v1/search/action",
            "What may the subject do on the resource?",
            ref("FoundActions"),
            Example({"results": [{"name": "read"}]}, {"subject": SUBJECT, "resource": ANVIL}),
            description="Complete.",
            body=ref("ActionSearch"),
            is_dated=True,
        ),
        Operation(
            "GET",
            "/.well-known/authzen-configuration",
            "Where the endpoints of AuthZEN are",
            ref("AuthZenMetadata"),
            Example(
                {"policy_decision_point": _BASE}
                | {name: f"{_BASE}/access/v1/{path}" for name, path in _ENDPOINTS.items()}
            ),
            description="By `PUBLIC_URL`, or what the request was sent to.",
            needs_key=False,
        ),
    ),
)
