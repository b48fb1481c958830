"""JSON schemas of what is sent and answered, by name.

Answers have exactly the keys that are listed. Requests may have more, which are ignored.
"""

from typing import Any

from authz_project.openapi.schemas import Schema, answered, many, nullable, ref, taken, text
from checks.asking.query import MAX_CALLS, MAX_VARIABLES
from checks.serializers import SMALLEST
from facts.context_header import HEADER as UNUSED_FACTS
from facts.models import MAX_ARGUMENTS
from facts.wire import MAX_ID_BYTES, MAX_NAME_BYTES
from policy.serializers import MAX_FILENAME

# ---- names and values -------------------------------------------------------------------------------------

NAMES = {
    "Name": {
        "type": "string",
        "description": f"Of a predicate, a type or a variable: at most {MAX_NAME_BYTES} bytes of UTF-8.",
        "minLength": 1,
        "maxLength": MAX_NAME_BYTES,
        "pattern": r"^[^\u0000-\u001f\u007f]+$",
    },
    "Id": {
        "type": "string",
        "description": f"At most {MAX_ID_BYTES} bytes of UTF-8, compared byte by byte. Not `*`, and without NUL.",
        "minLength": 1,
        "maxLength": MAX_ID_BYTES,
        "pattern": r"^([^*\u0000]|[^\u0000]{2,})[^\u0000]*$",
    },
    "Value": taken(
        "A thing with a type, or text (`String`), a number (`Integer`) or a truth (`Boolean`, `true` or `false`).",
        {"type": ref("Name"), "id": ref("Id")},
    ),
    "Argument": {
        "description": "A value; any value of a type, when `id` is null or absent; anything, when both are, or null.",
        "anyOf": [
            {"type": "null"},
            taken("", {"type": text()}, {"id": {"type": ["string", "null"]}}),
            taken("", {}, {"type": {"type": "null"}, "id": {"type": "null"}}),
        ],
    },
}

# ---- facts ----------------------------------------------------------------------------------------------------

_ARITY: dict[str, Any] = {"minItems": 1, "maxItems": MAX_ARGUMENTS}

FACTS = {
    "Fact": taken("Who is what to whom.", {"predicate": ref("Name"), "args": many(ref("Value"), **_ARITY)}),
    "FactPattern": taken(
        "Matches the stored facts with as many arguments.",
        {"predicate": ref("Name"), "args": many(ref("Argument"), **_ARITY)},
    ),
    "Changeset": {
        "description": "One step of a batch: either kind, not both.",
        "oneOf": [
            taken("", {"inserts": many(ref("Fact"))}) | {"not": {"required": ["deletes"]}},
            taken("", {"deletes": many(ref("FactPattern"))}) | {"not": {"required": ["inserts"]}},
        ],
    },
    "Bulk": taken(
        "Deletes first, then inserts.",
        {},
        {"delete": nullable(many(ref("FactPattern"))), "tell": nullable(many(ref("Fact")))},
    ),
    "StoredFact": answered(
        "", {"predicate": text(), "args": many(answered("", {"type": text(), "id": text()}), **_ARITY)}
    ),
    "Counts": answered(
        "How many facts are stored.",
        {name: {"type": "integer", "minimum": 0} for name in ("num_roles", "num_relations", "num_facts")},
    ),
}

# ---- questions ------------------------------------------------------------------------------------------------

_ACTOR = {"actor_type": ref("Name"), "actor_id": ref("Id")}
_ACTION = {"action": ref("Id")}
_RESOURCE = {"resource_type": ref("Name"), "resource_id": ref("Id")}
_CONTEXT_FACTS = (
    f"Count as stored, for this question only. Those that are not used in policy count for nothing; `{UNUSED_FACTS}` "
    "tells of them."
)
_CONTEXT = {"context_facts": nullable(many(ref("Fact"), _CONTEXT_FACTS))}
_PAGE_TOKEN = {"page_token": {"type": ["string", "null"], "description": "`next_page_token` of the page before."}}

QUESTIONS = {
    "AuthorizeQuery": taken("May the actor do the action on the resource?", _ACTOR | _ACTION | _RESOURCE, _CONTEXT),
    "ActionsQuery": taken("What may the actor do on the resource?", _ACTOR | _RESOURCE, _CONTEXT),
    "ListQuery": taken(
        "On which resources of the type may the actor do the action?",
        _ACTOR | _ACTION | {"resource_type": ref("Name")},
        _CONTEXT
        | _PAGE_TOKEN
        | {
            "page_size": {
                "type": ["integer", "null"],
                "minimum": SMALLEST,
                "description": "Required for the first page, and ignored for the others. Clients that send "
                f"`X-OsoApiVersion` may leave it out; it is {SMALLEST} then.",
            }
        },
    ),
    "AuthorizeResourcesQuery": taken(
        "On which of these may the actor do the action?",
        _ACTOR | _ACTION | {"resources": many(ref("Value"))},
        _CONTEXT,
    ),
    "Call": {
        "type": "array",
        "description": "A predicate and the names of its variables.",
        "prefixItems": [ref("Name"), many(ref("Name"), maxItems=MAX_VARIABLES)],
        "minItems": 2,
        "maxItems": 2,
        "items": False,
    },
    "Constraint": taken(
        "A variable's type, and the ids that it may have; null is any.",
        {"type": ref("Name")},
        {"ids": nullable(many(ref("Id")))},
    ),
    "Query": taken(
        "All calls hold. A variable that occurs several times has one value.",
        {
            "predicate": ref("Call"),
            "constraints": {
                "type": "object",
                "description": "The constraint of every variable; those of other names are ignored.",
                "additionalProperties": ref("Constraint"),
            },
        },
        {"calls": nullable(many(ref("Call"), maxItems=MAX_CALLS))} | _CONTEXT,
    ),
    "FactQuery": taken("", {"fact": ref("FactPattern")}, _CONTEXT),
    "Expectation": taken("", {"request_id": ref("Name"), "expected": {"type": "boolean"}}),
}

# ---- answers ----------------------------------------------------------------------------------------------------

_STAR = "`*` is every one."

ANSWERS = {
    "Decision": answered("", {"allowed": {"type": "boolean"}}),
    "Actions": answered("", {"results": many(text(), f"In order. {_STAR}")}),
    "Listing": answered(
        "",
        {"results": many(text(), f"Ids, in order. {_STAR}")},
        {"next_page_token": {"type": ["string", "null"], "description": "null or absent after the last page."}},
    ),
    "Allowed": answered("", {"results": many(answered("", {"type": text(), "id": text()}), "In the order asked.")}),
    "Solutions": answered(
        "",
        {
            "results": many(
                {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
                "Each solution once: ids by variable, null for every value.",
            )
        },
    ),
    "FoundFacts": answered(
        "",
        {
            "results": many(
                answered(
                    "",
                    {
                        "predicate": text(),
                        "args": many(answered("", {name: {"type": ["string", "null"]} for name in ("type", "id")})),
                    },
                ),
                "Stored or derived; an id of null is every value.",
            )
        },
    ),
    "Message": answered("", {"message": text()}),
    "Greeting": answered("", {"hello": text(), "api_version": {"type": "integer"}}),
    "Token": answered("", {"token": text("The new environment's key.")}),
}

# ---- policies -------------------------------------------------------------------------------------------------

_PROBLEM = answered("", {"error_type": {"enum": ["ValidationFailed", "AssertionFailed"]}, "message": text()})
_TEST = answered("", {"name": text(), "passed": {"type": "integer"}, "total": {"type": "integer"}})

POLICIES = {
    "Policy": taken(
        "A text in Polar.",
        {"src": text()},
        {
            "filename": {
                "anyOf": [
                    {"type": "string", "maxLength": MAX_FILENAME, "pattern": "^[ -~]*$"},
                    {"type": "null"},
                ],
                "description": "Stands in front of its problems: one line, of characters that can be printed.",
            }
        },
    ),
    "ActivePolicy": answered(
        "",
        {"policy": nullable(answered("", {"src": text(), "filename": {"type": ["string", "null"]}}))},
    ),
    "PolicyRefused": {
        "description": "Why the active policy stays.",
        "oneOf": [
            answered("The request is wrong.", {"error_type": {"const": "Generic"}, "message": text()}),
            answered(
                "The text is not a policy.",
                {"error_type": {"const": "Validation"}, "message": text(), "errors": many(_PROBLEM)},
            ),
            answered(
                "A test in it fails.",
                {
                    "error_type": {"const": "TestsFailed"},
                    "message": text(),
                    "test_results": answered(
                        "", {"success": {"const": False}, "errors": many(_PROBLEM), "tests": many(_TEST)}
                    ),
                },
            ),
        ],
    },
    "Metadata": answered(
        "",
        {
            "metadata": answered(
                "",
                {"resources": {"type": "object", "additionalProperties": ref("ResourceMetadata")}},
            )
        },
    ),
    "ResourceMetadata": answered(
        "What a block declares and inherits; `global` is always there.",
        {
            "roles": many(text()),
            "permissions": many(text()),
            "relations": {"type": "object", "additionalProperties": text()},
        },
    ),
}

# ---- SQL for the caller's database ----------------------------------------------------------------------------

_BINDINGS = {"data_bindings": {"type": ["string", "null"], "description": "YAML: which facts your tables hold."}}
_COLUMN = text("Of the ids in your query, such as `id` or `repository.id`.")

LOCAL = {
    "Sql": answered("", {"sql": text("To run against your own database.")}),
    "AuthorizeLocal": taken("", {"query": ref("AuthorizeQuery")}, _BINDINGS),
    "ActionsLocal": taken("", {"query": ref("ActionsQuery")}, _BINDINGS),
    "ListLocal": taken("", {"query": ref("ListQuery"), "column": _COLUMN}, _BINDINGS),
    "QueryLocal": taken("", {"query": ref("Query"), "mode": ref("Mode")}, _BINDINGS),
    "Mode": {
        "oneOf": [
            taken(
                "A statement with a column for each of these variables; without any, one row: is there a solution?",
                {
                    "mode": {"const": "select"},
                    "query_vars_to_output_column_names": {"type": "object", "additionalProperties": text()},
                },
            ),
            taken(
                "A condition for the rows whose column has one of the variable's values.",
                {"mode": {"const": "filter"}, "query_var": ref("Name"), "output_column_name": _COLUMN},
            ),
        ]
    },
}

# ---- explanations ---------------------------------------------------------------------------------------------

_STAR_ID: Schema = {"anyOf": [ref("Id"), {"const": "*"}]}
_KINDS = (
    "rule", "part", "fact", "comparison", "absence", "again", "unexplained", "obstacle", "missing", "false", "present",
)  # fmt: skip
_VALUE = answered("", {"type": text(), "id": {"type": ["string", "null"], "description": "null is any."}})
_GOAL = {
    "goal": text("What is explained."),
    "allowed": {"type": "boolean"},
    "proof": nullable(ref("Reason")),
    "obstacles": many(ref("Reason"), "One for each rule that could have granted it."),
    "note": text("What the question names that the policy has no word for, or that no rule is about it."),
}

_UNUSED = {
    "unused_context_facts": many(text(), "Context facts that are not used in policy; absent where all are used.")
}

EXPLANATIONS: dict[str, Schema] = {
    "ExplainQuery": {
        "description": "What /authorize was asked, or one solution of /evaluate_query.",
        "anyOf": [
            taken(
                "`*` explains a `*` in an answer, that is, any value.",
                {
                    "actor_type": ref("Name"), "actor_id": _STAR_ID, "action": _STAR_ID,
                    "resource_type": ref("Name"), "resource_id": _STAR_ID,
                },
                _CONTEXT,
            )
            | {"not": {"required": ["predicate"]}},
            ref("Query"),
        ],
    },
    "Explanation": {
        "anyOf": [
            answered("", {"policy_version": {"type": ["integer", "null"]}} | _GOAL, _UNUSED),
            answered(
                "Of a query: a proof or obstacles for each of its calls.",
                {
                    "policy_version": {"type": ["integer", "null"]},
                    "allowed": {"type": "boolean"},
                    "calls": many(answered("", _GOAL)),
                },
                _UNUSED,
            ),
        ]
    },
    "Reason": answered(
        "One step, and below it (`because`) what it rests upon.",
        {"kind": {"enum": list(_KINDS)}, "text": text("The step in one line.")},
        {
            "fact": answered("", {"predicate": text(), "args": many(_VALUE)}),
            "source": {"enum": ["stored", "context", "policy"]},
            "rule": answered("As the policy has it.", {"text": text(), "line": {"type": ["integer", "null"]}}),
            "bindings": {"type": "object", "description": "The rule's variables.", "additionalProperties": _VALUE},
            "met": many(text(), "Of an obstacle: the conditions before the one that is missing."),
            "note": text(),
            "because": many(ref("Reason")),
        },
    ),
}  # fmt: skip

SHAPES: dict[str, Schema] = NAMES | FACTS | QUESTIONS | ANSWERS | POLICIES | LOCAL | EXPLANATIONS
