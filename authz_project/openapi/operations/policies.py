"""The policy's operations."""

from authz_project.openapi.operation import Example, Group, Operation, Parameter
from authz_project.openapi.shapes import parameters_of
from policy.json_schema import ref
from policy.scopes import Scope
from policy.serializers import PublishFlags

SOURCE = """actor User {}

resource Organization {
  roles = ["member", "owner"];
  "member" if "owner";
}

resource Repository {
  permissions = ["read", "delete"];
  relations = { organization: Organization };
  "read" if "member" on "organization";
  "delete" if "owner" on "organization";
}
"""

_NUMBER = {"type": "integer", "minimum": 0}

GROUP = Group(
    "Policy",
    "The rules, in the Polar language. A new policy becomes active whole or not at all, and stored facts stay.",
    (
        Operation(
            "POST",
            "/api/policy",
            "Replace the policy",
            ref("Message"),
            Example({"message": "policy version 1 is active"}, {"src": SOURCE, "filename": "main.polar"}),
            description="The text is compiled and the tests in it are run before it becomes active.",
            body=ref("Policy"),
            parameters=parameters_of(PublishFlags),
            statuses={
                202: "It is the active policy already.",
                400: "The text is not a policy, a test in it fails, or the request is malformed.",
            },
            is_change=True,
            scope=Scope.POLICY,
            refused_body="PolicyRefused",
        ),
        Operation(
            "GET",
            "/api/policy",
            "Read the policy",
            ref("ActivePolicy"),
            Example({"policy": {"src": SOURCE, "filename": "main.polar"}}),
            description="null when there is none.",
            parameters=(Parameter("id", "The number of an earlier version.", _NUMBER),),
            statuses={400: "The number is not one.", 404: "There is no such version."},
        ),
        Operation(
            "GET",
            "/api/policy_metadata",
            "List the types, roles, permissions and relations",
            ref("Metadata"),
            Example(
                {
                    "metadata": {
                        "resources": {
                            "Organization": {"roles": ["member", "owner"], "permissions": [], "relations": {}},
                            "Repository": {
                                "roles": [],
                                "permissions": ["delete", "read"],
                                "relations": {"organization": "Organization"},
                            },
                            "User": {"roles": [], "permissions": [], "relations": {}},
                            "global": {"roles": [], "permissions": [], "relations": {}},
                        }
                    }
                }
            ),
            parameters=(
                Parameter("version", "The number of an earlier version.", _NUMBER),
                Parameter("id", "The same, by the name that it has for the policy.", _NUMBER),
            ),
            statuses={
                400: "A number is not one, or there are two that differ.",
                404: "There is no policy, or no such version.",
            },
        ),
    ),
)
