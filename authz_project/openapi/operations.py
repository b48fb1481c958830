"""Say what each endpoint takes and answers, with examples.

The examples tell one story: each answer follows from the requests before it.
"""

from authz_project.openapi.schemas import Example, Group, Operation, Parameter, parameters_of
from facts.history import LARGEST, USUAL
from facts.serializers import CHANGES, FACT, FACTS, PATTERN, PATTERNS
from policy.ground import endpoint
from policy.ground.endpoint import Schema, many, ref
from policy.scopes import Scope
from policy.serializers import PublishFlags

# ---- The policy's operations --------------------------------------------------------------------------------------

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

POLICIES_GROUP = Group(
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


# ---- Operations that store, delete and read facts -----------------------------------------------------------------

ANN = {"type": "User", "id": "ann"}
ACME = {"type": "Organization", "id": "acme"}
ANVIL = {"type": "Repository", "id": "anvil"}


def role(user: str, name: str, organization: str = "acme") -> dict:
    args = [("User", user), ("String", name), ("Organization", organization)]
    return {"predicate": "has_role", "args": [{"type": type_name, "id": text} for type_name, text in args]}


def belongs(repository: str, organization: str = "acme") -> dict:
    args = [("Repository", repository), ("String", "organization"), ("Organization", organization)]
    return {"predicate": "has_relation", "args": [{"type": type_name, "id": text} for type_name, text in args]}


BEN_FOR_NOW = role("ben", "owner") | {"expires_at": "2099-01-01T00:00:00Z"}
_PATTERN = (
    Parameter("predicate", "Of the facts to list."),
    *(
        Parameter(f"args.{place}.{part}", f"The {part} of argument {place}.")
        for place in range(5)
        for part in ("type", "id")
    ),
)
_SIZE: Schema = {"type": "integer", "minimum": 1, "maximum": LARGEST, "default": USUAL}

CHANGES_GROUP = Group(
    "Facts",
    "Who is what to whom. The active policy must have a use for a fact that is stored.",
    (
        Operation(
            "POST",
            "/api/batch",
            "Insert and delete facts",
            ref("Message"),
            Example(
                {"message": "the batch is applied"},
                [
                    {"deletes": [{"predicate": "has_role", "args": [ANN, None, {"type": "Organization", "id": None}]}]},
                    {"inserts": [role("ann", "member"), BEN_FOR_NOW, belongs("anvil"), belongs("hammer")]},
                ],
            ),
            description="In order, all or none. To insert what is there, or to delete what is not, is no mistake. A "
            "fact that is inserted may say when it ends (`expires_at`): from then on it counts no more. Inserted again "
            "with another end, or with none, it has that one.",
            body=CHANGES.schema,
            is_change=True,
            scope=Scope.FACTS,
        ),
        Operation(
            "GET",
            "/api/facts",
            "List stored facts",
            many(ref("StoredFact")),
            Example([BEN_FOR_NOW], query={"predicate": "has_role", "args.0.type": "User", "args.0.id": "ben"}),
            description="What a policy derives is not among them, nor what has ended. Without parameters: all. "
            "Arguments are counted from 0 to 4, and those that are not named may be anything.",
            parameters=(
                *_PATTERN,
                Parameter("as_of", "A revision's number, or a time in RFC 3339: the facts that held then."),
            ),
            is_dated=True,
            statuses={400: "A parameter is malformed."},
        ),
        Operation(
            "GET",
            "/api/history",
            "Who inserted and deleted facts, and when",
            ref("History"),
            Example(
                {
                    "results": [
                        {
                            "revision": 2,
                            "at": "2026-11-03T14:02:11.123456Z",
                            "author": 'key 3 "billing"',
                            "kind": "facts",
                            "inserted": [role("ann", "member")],
                            "deleted": [],
                            "policy_version": 1,
                        }
                    ],
                    "next_page_token": None,
                    "horizon": 0,
                },
                query={"predicate": "has_role", "args.0.type": "User", "args.0.id": "ann", "page_size": "100"},
            ),
            description="The revisions that changed the facts that GET /api/facts lists with these parameters, or "
            "would have listed. A page is of so many facts: a revision that changed more goes on with the next page.",
            parameters=(
                *_PATTERN,
                Parameter("as_of", "A revision's number, or a time in RFC 3339: what had happened by then."),
                Parameter("page_size", f"Facts on a page: 1 to {LARGEST}; {USUAL} if it is left out.", _SIZE),
                Parameter("page_token", "The `next_page_token` of the page before, with the same other parameters."),
            ),
            statuses={400: "A parameter is malformed."},
        ),
        Operation(
            "GET",
            "/api/changes",
            "Follow what changes",
            ref("Changes"),
            Example(
                {
                    "changes": [
                        {
                            "revision": 2,
                            "at": "2026-11-03T14:02:11.123456Z",
                            "author": 'key 1 "billing"',
                            "kind": "facts",
                            "inserted": [role("ann", "member"), BEN_FOR_NOW],
                            "deleted": [],
                            "policy_version": None,
                        }
                    ],
                    "next": 2,
                    "more": False,
                },
                query={"after": "1", "predicate": "has_role"},
            ),
            description="In order and without gaps: each committed change once, and whole. Go on with `after` as "
            "`next` was. `after=0` begins with all facts as of the oldest revision that is kept.",
            parameters=(
                Parameter("after", "A revision's number, or what `next` was; 0 if not said."),
                Parameter("limit", "Facts of an answer: 1 to 10,000, and 1,000 if not said.", {"type": "integer"}),
                Parameter("wait", "Seconds to wait for a change where there is none yet: 0 to 60.", {"type": "number"}),
                Parameter("predicate", "Only facts of it; may be given several times.", many(endpoint.text())),
            ),
            statuses={
                400: "A parameter is malformed, or there is no such revision yet.",
                410: "What follows this revision is not kept any more; it is from `horizon` on.",
            },
            refused_bodies={410: "BeforeHorizon"},
        ),
    ),
)


# ---- The operation that explains ----------------------------------------------------------------------------------

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


# ---- Operations that ask ------------------------------------------------------------------------------------------

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

QUESTIONS_GROUP = Group(
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


# ---- Operations of AuthZEN, the Authorization API 1.0 of the OpenID Foundation ------------------------------------

SUBJECT = {"type": "User", "id": "ann"}
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

AUTHZEN_GROUP = Group(
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


# ---- Operations that answer with SQL for the caller's own database ------------------------------------------------

BINDINGS = """facts:
  has_relation(Repository:_, organization, Organization:_):
    query: SELECT id, organization_id FROM repository
sql_types:
  Repository: text
  Organization: text
"""
_QUERY = {
    "predicate": ["allow", ["who", "action", "repository"]],
    "calls": [],
    "constraints": {
        "who": {"type": "User", "ids": ["ben"]},
        "action": {"type": "String", "ids": ["delete"]},
        "repository": {"type": "Repository", "ids": None},
    },
    "context_facts": [],
}

# ---- what is answered: the statement around the binding's query, and what is stored here as literals -----------

_TABLE = "WITH __f0(a0, a2) AS (\nSELECT id, organization_id FROM repository\n)"
_ACME = "CAST(__t0.a2 AS text) COLLATE \"default\" = 'acme'"
_SAW = f"FROM __f0 __t0 WHERE {_ACME} AND CAST(__t0.a0 AS text) COLLATE \"default\" = 'saw'"
_STORED = "__k0(k0) AS (VALUES ('anvil'), ('hammer'))"
_ROWS = f"FROM __f0 __t0 WHERE __t0.a0 IS NOT NULL AND {_ACME}"
_ID = 'CAST(__t0.a0 AS text) COLLATE "default"'
_CALLERS = 'CAST(repository.id AS text) COLLATE "default"'

_AUTHORIZE = f"{_TABLE} SELECT EXISTS (SELECT 1 {_SAW}) AS allowed"
_ACTIONS = f"""{_TABLE}, __answers(o0) AS (SELECT DISTINCT 'read' AS o0 {_SAW}) SELECT o0 AS "actions" FROM __answers"""
_LIST = f"{_CALLERS} IN ({_TABLE}, {_STORED} SELECT {_ID} {_ROWS} UNION ALL SELECT k0 FROM __k0)"
_SELECT = (
    f"{_TABLE}, {_STORED}, __answers(o0) AS (SELECT {_ID} AS o0 {_ROWS} "
    'UNION SELECT __t0.k0 COLLATE "default" AS o0 FROM __k0 __t0) SELECT o0 AS "id" FROM __answers'
)

# ---- the operations ------------------------------------------------------------------------------------------------

LOCAL_GROUP = Group(
    "SQL for your own database",
    "The same questions, answered by a statement or a condition over the tables that the data bindings name. "
    "What is stored here is written into it.",
    (
        Operation(
            "POST",
            "/api/authorize_query",
            "May the actor do the action on the resource?",
            ref("Sql"),
            Example({"sql": _AUTHORIZE}, {"query": AUTHORIZE | {"resource_id": "saw"}, "data_bindings": BINDINGS}),
            description="A statement with one row and one column, `allowed`.",
            body=ref("AuthorizeLocal"),
            has_context=True,
            is_dated=True,
        ),
        Operation(
            "POST",
            "/api/actions_query",
            "What may the actor do on the resource?",
            ref("Sql"),
            Example(
                {"sql": _ACTIONS},
                {"query": ACTOR | {"resource_type": "Repository", "resource_id": "saw"}, "data_bindings": BINDINGS},
            ),
            description="A statement with a row for each action, in the column `actions`.",
            body=ref("ActionsLocal"),
            has_context=True,
            is_dated=True,
        ),
        Operation(
            "POST",
            "/api/list_query",
            "On which resources of a type may the actor do the action?",
            ref("Sql"),
            Example(
                {"sql": _LIST},
                {
                    "query": ACTOR | {"action": "read", "resource_type": "Repository"},
                    "column": "repository.id",
                    "data_bindings": BINDINGS,
                },
            ),
            description="A condition for the `WHERE` of your query. Sizes and tokens of pages mean nothing here.",
            body=ref("ListLocal"),
            has_context=True,
            is_dated=True,
        ),
        Operation(
            "POST",
            "/api/evaluate_query_local",
            "Ask anything about the policy's rules",
            ref("Sql"),
            Example(
                {"sql": _SELECT},
                {
                    "query": _QUERY,
                    "data_bindings": BINDINGS,
                    "mode": {"mode": "select", "query_vars_to_output_column_names": {"repository": "id"}},
                },
            ),
            description="A statement or a condition, as `mode` says.",
            body=ref("QueryLocal"),
            has_context=True,
            is_dated=True,
        ),
    ),
)


# ---- Operations that older clients use ----------------------------------------------------------------------------

_DELETED = {"message": "matching facts are deleted"}
_ROLE_OF_CAT = {"predicate": "has_role", "args": [{"type": "User", "id": "cat"}, None, None]}

DEPRECATED_GROUP = Group(
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


# ---- Operations about the service itself --------------------------------------------------------------------------

_READY = Example({"message": "ready"})

SERVICE_GROUP = Group(
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


GROUPS = (POLICIES_GROUP, CHANGES_GROUP, QUESTIONS_GROUP, AUTHZEN_GROUP, LOCAL_GROUP, DEPRECATED_GROUP, SERVICE_GROUP)
OPERATIONS = tuple(operation for group in GROUPS for operation in group.operations)
