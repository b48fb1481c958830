"""Operations about the service itself."""

from authz_project.openapi.operation import Example, Group, Operation, Parameter
from policy.json_schema import ref
from policy.scopes import Scope

_READY = Example({"message": "ready"})

GROUP = Group(
    "Service",
    "Health, and environments to test in.",
    (
        Operation(
            "POST",
            "/api/clear_data",
            "Delete all facts",
            ref("Message"),
            Example({"message": "all facts are deleted"}),
            description="Of the key's environment. The policy stays.",
            is_change=True,
            scope=Scope.FACTS,
        ),
        Operation(
            "GET", "/api/healthcheck", "Is the service up?", ref("Message"), _READY, needs_key=False,
            description="It takes no database connection, so that it answers when all are taken.",
        ),
        Operation("GET", "/healthcheck", "Is the service up?", ref("Message"), _READY, needs_key=False),
        Operation(
            "GET", "/readyz", "Are questions answered here?", ref("Message"), _READY, needs_key=False,
            description="The database answers, in the form that this version works on.",
            statuses={503: "Send requests elsewhere: the reason says why."},
            refused_bodies={503: "Unready"},
        ),
        Operation(
            "POST",
            "/test_environment",
            "Make an environment for a test",
            ref("Token"),
            Example({"token": "e_testenv0a1b2c3d4e5_0123456789ab_0123456789abcdef0123456789abcdef"}),
            description="With `serve --dev` only. It is empty, or a copy of the default one.",
            parameters=(
                Parameter("copy", "`true` copies the policy and the facts of the default environment."),
            ),
            statuses={404: "The server was started without `--dev`."},
            needs_key=False,
        ),
        Operation(
            "GET", "/api/openapi.json", "This description", {"type": "object"}, Example({}), needs_key=False,
            description="As OpenAPI 3.1. For people it is at `/api/docs`.",
        ),
    ),
)  # fmt: skip
