"""The operation that explains."""

from authz_project.openapi.operation import Example, Operation
from authz_project.openapi.operations.changes import ACME, ANVIL, belongs, role
from policy.json_schema import ref

_DEFAULT = {"text": "allow(actor, action, resource) if has_permission(actor, action, resource);", "line": None}
_WHO = {"actor": {"type": "User", "id": "ann"}}
_READ = {"type": "String", "id": "read"}
_BOUND = _WHO | {"action": _READ, "resource": ANVIL}
_BOUND_THERE = _WHO | {"resource": ANVIL, "organization": ACME}
_SINCE = {"revision": 2, "at": "2026-11-03T14:02:11.123456Z", "author": 'key 3 "billing"', "kind": "facts"}

EXPLAIN = Operation(
    "POST",
    "/api/explain",
    "Why is an answer as it is?",
    ref("Explanation"),
    Example(
        {
            "allowed": True,
            "policy_version": 1,
            "goal": 'allow(User:ann, "read", Repository:anvil)',
            "proof": {
                "kind": "rule",
                "text": 'allow(User:ann, "read", Repository:anvil)',
                "fact": {"predicate": "allow", "args": [_WHO["actor"], _READ, ANVIL]},
                "rule": _DEFAULT,
                "bindings": _BOUND,
                "because": [
                    {
                        "kind": "rule",
                        "text": 'has_permission(User:ann, "read", Repository:anvil)',
                        "fact": {"predicate": "has_permission", "args": [_WHO["actor"], _READ, ANVIL]},
                        "rule": {"text": '"read" if "member" on "organization";', "line": 11},
                        "bindings": _BOUND_THERE,
                        "because": [
                            {
                                "kind": "fact",
                                "text": 'has_relation(Repository:anvil, "organization", Organization:acme)',
                                "fact": belongs("anvil"),
                                "source": "stored",
                                "since": _SINCE,
                            },
                            {
                                "kind": "fact",
                                "text": 'has_role(User:ann, "member", Organization:acme)',
                                "fact": role("ann", "member"),
                                "source": "stored",
                                "since": _SINCE,
                            },
                        ],
                    }
                ],
            },
            "obstacles": [],
            "note": "",
        },
        {
            "actor_type": "User", "actor_id": "ann", "action": "read",
            "resource_type": "Repository", "resource_id": "anvil", "context_facts": [],
        },
    ),
    description="A proof, of rules of the policy and facts, or for each rule that could have granted it how far it got "
    "and what is missing. Stored facts come with who stored them and when, and missing ones that were there once with "
    "who deleted them. Takes several statements, in one snapshot, and at most about three times as long as the "
    "decision: where that is not enough, `complete` is false, and what was not looked into is `unexplained`. Of a "
    "query, every variable must have one id, or null for any.",
    body={"allOf": [ref("ExplainQuery"), ref("Moment")]},
    is_dated=True,
    has_context=True,
)  # fmt: skip
