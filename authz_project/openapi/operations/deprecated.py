"""Operations that older clients use."""

from authz_project.openapi.operation import Example, Group, Operation
from authz_project.openapi.operations.changes import ANN, belongs, role
from authz_project.openapi.operations.questions import ACTOR, RESOURCE, at_a_moment
from facts.serializers import FACT, FACTS, PATTERN, PATTERNS
from policy.json_schema import many, ref
from policy.scopes import Scope

_DELETED = {"message": "matching facts are deleted"}
_ROLE_OF_CAT = {"predicate": "has_role", "args": [{"type": "User", "id": "cat"}, None, None]}

GROUP = Group(
    "For older clients",
    "All of it works; what to use today is said with each.",
    (
        Operation(
            "POST",
            "/api/facts",
            "Insert a fact",
            ref("StoredFact"),
            Example(role("cat", "member"), role("cat", "member")),
            body=FACT.schema,
            is_change=True,
            scope=Scope.FACTS,
            deprecated_for="POST /api/batch",
        ),
        Operation(
            "POST",
            "/api/query",
            "List what is stored or derived",
            ref("FoundFacts"),
            Example(
                {"results": [role("ann", "member"), role("ben", "member"), role("cat", "member")]},
                {
                    "fact": {
                        "predicate": "has_role",
                        "args": [{"type": "User"}, {"type": "String", "id": "member"}, None],
                    }
                },
            ),
            body=at_a_moment("FactQuery"),
            has_context=True,
            is_dated=True,
            deprecated_for="POST /api/evaluate_query",
        ),
        Operation(
            "POST",
            "/api/bulk_actions",
            "What may actors do on resources?",
            many(ref("Actions")),
            Example(
                [{"results": ["read"]}, {"results": ["delete", "read"]}],
                [ACTOR | RESOURCE, {**ACTOR, "actor_id": "ben", **RESOURCE}],
            ),
            description="The context facts and the moment of the first question count for all.",
            body=many(at_a_moment("ActionsQuery")),
            has_context=True,
            is_dated=True,
            deprecated_for="POST /api/actions",
        ),
        Operation(
            "DELETE",
            "/api/facts",
            "Delete matching facts",
            ref("Message"),
            Example(_DELETED, _ROLE_OF_CAT),
            body=PATTERN.schema,
            is_change=True,
            scope=Scope.FACTS,
            deprecated_for="POST /api/batch",
        ),
        Operation(
            "POST",
            "/api/bulk",
            "Delete facts, then insert facts",
            ref("Message"),
            Example({"message": "the changes are applied"}, {"delete": [_ROLE_OF_CAT], "tell": [role("dan", "owner")]}),
            body=ref("Bulk"),
            is_body_optional=True,
            is_change=True,
            scope=Scope.FACTS,
            deprecated_for="POST /api/batch",
        ),
        Operation(
            "POST",
            "/api/bulk_load",
            "Insert facts",
            ref("Message"),
            Example({"message": "the facts are stored"}, [belongs("drill"), belongs("saw")]),
            body=FACTS.schema,
            is_change=True,
            scope=Scope.FACTS,
            deprecated_for="POST /api/batch",
        ),
        Operation(
            "POST",
            "/api/bulk_delete",
            "Delete matching facts",
            ref("Message"),
            Example(_DELETED, [{"predicate": "has_role", "args": [ANN, None, None]}]),
            body=PATTERNS.schema,
            is_change=True,
            scope=Scope.FACTS,
            deprecated_for="POST /api/batch",
        ),
        Operation(
            "GET",
            "/api/stats",
            "Count the stored facts",
            ref("Counts"),
            Example({"num_roles": 2, "num_relations": 4, "num_facts": 6}),
            deprecated_for="GET /api/facts",
        ),
        Operation(
            "GET",
            "/api/",
            "A greeting",
            ref("Greeting"),
            Example({"hello": "authz", "api_version": 0}),
            scope=None,
            deprecated_for="GET /api/healthcheck",
        ),
    ),
)
