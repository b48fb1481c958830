"""Operations that ask."""

from authz_project.openapi.operation import Example, Group, Operation
from authz_project.openapi.operations.changes import ANVIL, belongs
from authz_project.openapi.operations.explanations import EXPLAIN
from policy.json_schema import Schema, ref

ACTOR = {"actor_type": "User", "actor_id": "ann"}
RESOURCE = {"resource_type": "Repository", "resource_id": "anvil"}
AUTHORIZE: dict[str, object] = ACTOR | {"action": "read"} | RESOURCE | {"context_facts": []}
QUERY = {
    "predicate": ["allow", ["who", "action", "repository"]],
    "calls": [["has_relation", ["repository", "relation", "organization"]]],
    "constraints": {
        "who": {"type": "User", "ids": ["ann"]},
        "action": {"type": "String", "ids": None},
        "repository": {"type": "Repository", "ids": None},
        "relation": {"type": "String", "ids": ["organization"]},
        "organization": {"type": "Organization", "ids": ["acme"]},
    },
    "context_facts": [],
}


def at_a_moment(name: str) -> Schema:
    """Return a question that may be asked of an earlier moment."""
    return {"allOf": [ref(name), ref("Moment")]}


_SOLUTION = {"who": "ann", "action": "read", "relation": "organization", "organization": "acme"}

GROUP = Group(
    "Questions",
    "A question is one statement over what is committed when it is asked. An unknown action or type is "
    "no mistake: nobody may do it, on nothing.",
    (
        Operation(
            "POST",
            "/api/authorize",
            "May the actor do the action on the resource?",
            ref("Decision"),
            Example({"allowed": True}, AUTHORIZE),
            body=at_a_moment("AuthorizeQuery"),
            is_dated=True,
            has_context=True,
        ),
        Operation(
            "POST",
            "/api/actions",
            "What may the actor do on the resource?",
            ref("Actions"),
            Example({"results": ["delete", "read"]}, {**ACTOR, "actor_id": "ben", **RESOURCE}),
            body=at_a_moment("ActionsQuery"),
            is_dated=True,
            has_context=True,
        ),
        Operation(
            "POST",
            "/api/list",
            "On which resources of a type may the actor do the action?",
            ref("Listing"),
            Example(
                {"results": ["anvil", "hammer"], "next_page_token": None},
                ACTOR | {"action": "read", "resource_type": "Repository", "page_size": 10000},
            ),
            description="Complete, in pages. A token continues the question that it was given for, after the last id.",
            body=at_a_moment("ListQuery"),
            is_dated=True,
            has_context=True,
        ),
        Operation(
            "POST",
            "/api/authorize_resources",
            "On which of these resources may the actor do the action?",
            ref("Allowed"),
            Example(
                {"results": [ANVIL, {"type": "Repository", "id": "saw"}]},
                ACTOR
                | {
                    "action": "read",
                    "resources": [
                        ANVIL,
                        {"type": "Repository", "id": "nail"},
                        {"type": "Repository", "id": "saw"},
                    ],
                    "context_facts": [belongs("saw")],
                },
            ),
            description="The order and the duplicates of the request are kept.",
            body=at_a_moment("AuthorizeResourcesQuery"),
            is_dated=True,
            has_context=True,
        ),
        Operation(
            "POST",
            "/api/authorize_each",
            "Which of these checks are allowed?",
            ref("Decisions"),
            Example(
                {"results": [True, False, True]},
                {
                    "checks": [
                        {"actor": {"type": "User", "id": name}, "action": action, "resource": ANVIL}
                        for name, action in (("ann", "read"), ("ann", "delete"), ("ben", "delete"))
                    ],
                    "context_facts": [],
                },
            ),
            description="Of any actors, actions and resources, as of one moment. They are answered together: where one "
            "cannot be decided, because its body is wrong or it is too hard, none is.",
            body=at_a_moment("AuthorizeEachQuery"),
            is_dated=True,
            has_context=True,
        ),
        Operation(
            "POST",
            "/api/evaluate_query",
            "Ask anything about the policy's rules",
            ref("Solutions"),
            Example(
                {"results": [{**_SOLUTION, "repository": "anvil"}, {**_SOLUTION, "repository": "hammer"}]},
                QUERY,
            ),
            description="Several calls join on the variables that they share. Every variable has a constraint, "
            "which gives its type and, as the case may be, its values.",
            body=at_a_moment("Query"),
            is_dated=True,
            has_context=True,
        ),
        EXPLAIN,
        Operation(
            "POST",
            "/api/expect",
            "Say what an answer should have been",
            ref("Message"),
            Example({"message": "noted"}, {"request_id": "3d0c9a4e-5a5b-4f0e-9a50-6f1f3a2a7a11", "expected": True}),
            description="`request_id` is the `X-Request-ID` of that answer. Nothing is kept.",
            body=ref("Expectation"),
            is_change=True,
        ),
    ),
)
