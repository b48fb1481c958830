"""Operations that answer with SQL for the caller's own database."""

from authz_project.openapi.operation import Example, Group, Operation
from authz_project.openapi.operations.questions import ACTOR, AUTHORIZE
from policy.json_schema import ref

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

GROUP = Group(
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
