"""JSON schemas of requests and responses, by name, and their text form for people."""

import json
from typing import Any

from rest_framework import serializers

import checks.serializers as questions
import facts.views as facts
import localsql.views as local
from checks.authzen import requests as authzen
from facts.models import MAX_ARGUMENTS
from facts.wire import END
from policy.endpoint import DecodedField, JsonType, QueryParameter, Schema, answered, many, nullable, ref, taken, text
from policy.views import PolicyBody, TextField

# ---- JSON schemas of responses, by name. Responses have exactly the listed keys -----------------------------------

# ---- facts ----------------------------------------------------------------------------------------------------

_ARITY: dict[str, Any] = {"minItems": 1, "maxItems": MAX_ARGUMENTS}

_CHANGED_FACT = answered(
    "",
    {"predicate": text(), "args": many(answered("", {"type": text(), "id": text()}), **_ARITY)},
    {"expires_at": text("When the fact expires. Absent if it does not expire.")},
)

FACTS: dict[str, Schema] = {
    "History": answered(
        "",
        {
            "results": many(
                answered(
                    "The changes of one revision to matching facts.",
                    {
                        "revision": {"type": "integer", "minimum": 1},
                        "at": text("Commit time in UTC."),
                        "author": text("The API key, admin user or command that made the change."),
                        "kind": text("`facts`, `load`, `clear`, `copy` or `expiry`."),
                        "inserted": many(_CHANGED_FACT, "Includes facts whose expiry changed."),
                        "deleted": many(_CHANGED_FACT),
                        "policy_version": {
                            "type": ["integer", "null"],
                            "description": "The version active at that revision.",
                        },
                    },
                ),
                "Newest first.",
            ),
            "next_page_token": {"type": ["string", "null"], "description": "null after the last page."},
            "horizon": {
                "type": "integer",
                "minimum": 0,
                "description": "History up to this revision is not available.",
            },
        },
    ),
    "StoredFact": answered(
        "",
        {"predicate": text(), "args": many(answered("", {"type": text(), "id": text()}), **_ARITY)},
        {
            END: {
                "type": "string",
                "format": "date-time",
                "description": "When the fact expires, in UTC. Not sent to clients that send `X-OsoApiVersion`.",
            }
        },
    ),
    "Counts": answered(
        "The number of stored facts.",
        {name: {"type": "integer", "minimum": 0} for name in ("num_roles", "num_relations", "num_facts")},
    ),
}

# ---- changes of facts -----------------------------------------------------------------------------------------

CHANGES: dict[str, Schema] = {
    "Changes": answered(
        "",
        {
            "changes": many(ref("Change"), "In revision order, each revision once."),
            "next": {
                "anyOf": [{"type": "integer", "minimum": 0}, text()],
                "description": "The `after` of the next request: a revision number, or a token to continue within "
                "a revision.",
            },
            "more": {"type": "boolean", "description": "True if more changes are available now."},
        },
    ),
    "Change": answered(
        "One revision: changes that were committed together.",
        {
            "revision": {"type": "integer", "minimum": 0},
            "at": text("Commit time, by the database's clock."),
            "author": text("An API key, an admin user or a command."),
            "kind": text(
                "`facts`, `load`, `clear`, `copy`, `expiry`, `policy`, `environment`, `upgrade`, or `state` for "
                "all facts at a revision."
            ),
            "inserted": many(_CHANGED_FACT, "Facts that were not stored before, or that have a new expiry."),
            "deleted": many(ref("StoredFact"), "Facts that were stored before."),
            "policy_version": {
                "type": ["integer", "null"],
                "description": "The version that became active, if `kind` is `policy`.",
            },
        },
        {
            "part": {
                "type": "integer",
                "minimum": 1,
                "description": "The number of this part, from 1, if the revision comes in parts.",
            },
            "parts": {"type": "integer", "minimum": 1},
        },
    ),
    "BeforeHorizon": answered(
        "The requested changes are no longer available.",
        {
            "message": text(),
            "horizon": {"type": "integer", "description": "The oldest revision that can be used as `after`."},
        },
    ),
}

# ---- checks and queries -----------------------------------------------------------------------------------------

_STAR = "`*` stands for every value."

QUESTIONS: dict[str, Schema] = {
    "Decision": answered("", {"allowed": {"type": "boolean"}}),
    "Actions": answered("", {"results": many(text(), f"Sorted. {_STAR}")}),
    "Listing": answered(
        "",
        {"results": many(text(), f"Ids, sorted. {_STAR}")},
        {"next_page_token": {"type": ["string", "null"], "description": "null or absent after the last page."}},
    ),
    "Allowed": answered(
        "", {"results": many(answered("", {"type": text(), "id": text()}), "In the order of the request.")}
    ),
    "Decisions": answered(
        "", {"results": many({"type": "boolean"}, "One result per check, in the order of the request.")}
    ),
    "Solutions": answered(
        "",
        {
            "results": many(
                {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
                "Each solution once: ids by variable. null stands for every value.",
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
                "Stored or derived facts. An id of null stands for every value.",
            )
        },
    ),
    "Message": answered("", {"message": text()}),
    "ChangeMade": answered(
        "",
        {"message": text()},
        {
            "warnings": many(
                text(),
                "Only present if stored facts have roles or relations that the policy does not know. Not sent to "
                "clients that send `X-OsoApiVersion`.",
                minItems=1,
            )
        },
    ),
    "Unready": answered(
        "",
        {
            "message": text(),
            "reason": {
                "type": "string",
                "enum": ["draining", "database", "form"],
                "description": "`draining`: the process is shutting down. `database`: the database does not "
                "respond. `form`: the database schema belongs to another version.",
            },
        },
    ),
    "Greeting": answered("", {"hello": text(), "api_version": {"type": "integer"}}),
    "Token": answered("", {"token": text("An API key for the new environment.")}),
    "Sql": answered("", {"sql": text("The SQL to run against your own database.")}),
}

# ---- policies -------------------------------------------------------------------------------------------------

_PROBLEM = answered("", {"error_type": {"enum": ["ValidationFailed", "AssertionFailed"]}, "message": text()})
_TEST = answered("", {"name": text(), "passed": {"type": "integer"}, "total": {"type": "integer"}})

POLICIES: dict[str, Schema] = {
    "ActivePolicy": answered(
        "",
        {"policy": nullable(answered("", {"src": text(), "filename": {"type": ["string", "null"]}}))},
    ),
    "PolicyRefused": {
        "description": "The reason why the policy was not published.",
        "oneOf": [
            answered("The request is invalid.", {"error_type": {"const": "Generic"}, "message": text()}),
            answered(
                "The policy does not compile.",
                {"error_type": {"const": "Validation"}, "message": text(), "errors": many(_PROBLEM)},
            ),
            answered(
                "A test of the policy fails.",
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
        "What a block declares and inherits. `global` is always present.",
        {
            "roles": many(text()),
            "permissions": many(text()),
            "relations": {"type": "object", "additionalProperties": text()},
        },
    ),
}

# ---- explanations ---------------------------------------------------------------------------------------------

_KINDS = (
    "rule", "part", "fact", "comparison", "absence", "again", "unexplained", "obstacle", "missing", "false", "present",
)  # fmt: skip
_VALUE = answered("", {"type": text(), "id": {"type": ["string", "null"], "description": "null stands for any value."}})
_GOAL = {
    "goal": text("The check that is explained."),
    "allowed": {"type": "boolean"},
    "proof": nullable(ref("Reason")),
    "obstacles": many(ref("Reason"), "One per rule that could have granted access."),
    "note": text("Names in the request that the policy does not declare, or a note that no rule matches."),
}

_UNUSED = {
    "unused_context_facts": many(text(), "Context facts that are not used in policy. Absent if all are used."),
    "complete": {"const": False, "description": "Present if the explanation is incomplete."},
    "message": text("Why the explanation is incomplete."),
}

_WOULD_ALLOW = {
    "would_allow": answered(
        "The smallest changes, each of which would allow it. Present if requested and access is denied.",
        {
            "changes": many(answered("", {"insert": many(ref("Fact")), "delete": many(ref("Fact"))})),
            "notes": many(text(), "Why there are none, or which stored facts were not considered."),
        },
    ),
}

_MARK = answered(
    "A revision. If it is no longer available, only its number is set.",
    {
        "revision": {"type": ["integer", "null"], "description": "null if it is from before history began."},
        "at": {"type": ["string", "null"], "description": "In UTC."},
        "author": {"type": ["string", "null"]},
        "kind": {"type": ["string", "null"]},
    },
    {"before": {"type": "integer", "description": "The oldest known revision, if `revision` is null."}},
)

EXPLANATIONS: dict[str, Schema] = {
    "Explanation": {
        "anyOf": [
            answered("", {"policy_version": {"type": ["integer", "null"]}} | _GOAL, _UNUSED | _WOULD_ALLOW),
            answered(
                "For a query: a proof or obstacles for each call.",
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
        "One step, with the steps it depends on in `because`.",
        {"kind": {"enum": list(_KINDS)}, "text": text("The step as one line of text.")},
        {
            "fact": answered("", {"predicate": text(), "args": many(_VALUE)}),
            "source": {"enum": ["stored", "context", "policy"]},
            "rule": answered("The rule, as in the policy.", {"text": text(), "line": {"type": ["integer", "null"]}}),
            "bindings": {"type": "object", "description": "The rule's variables.", "additionalProperties": _VALUE},
            "met": many(text(), "For an obstacle: the conditions that hold, before the missing one."),
            "note": text(),
            "since": _MARK | {"description": "For a stored fact, or a missing one that was stored before: when it "
                                             "was inserted."},
            "until": _MARK | {"description": "For a missing fact that was stored before: when it was deleted or "
                                             "expired."},
            "expires_at": text("When the fact expires or expired."),
            "because": many(ref("Reason")),
        },
    ),
}  # fmt: skip

# ---- AuthZEN ----------------------------------------------------------------------------------------------------


def _found(result: Schema) -> Schema:
    page = answered("", {"next_token": text("Empty after the last page."), "count": {"type": "integer", "minimum": 0}})
    return answered("", {"results": many(result)}, {"page": page})


AUTHZEN: dict[str, Schema] = {
    "Evaluated": answered(
        "",
        {"decision": {"type": "boolean"}},
        {"context": {"type": "object", "description": "The error of an invalid evaluation, or the explanation."}},
    ),
    "EvaluatedMany": answered(
        "", {"evaluations": many(ref("Evaluated"), "In the order of the request, up to the evaluation that decides.")}
    ),
    "FoundEntities": _found(answered("", {"type": text(), "id": text()})),
    "FoundActions": _found(answered("", {"name": text()})),
    "AuthZenMetadata": answered(
        "",
        {
            name: text()
            for name in (
                "policy_decision_point",
                "access_evaluation_endpoint",
                "access_evaluations_endpoint",
                "search_subject_endpoint",
                "search_resource_endpoint",
                "search_action_endpoint",
            )
        },
    ),
}

ANSWERS = FACTS | CHANGES | QUESTIONS | POLICIES | EXPLANATIONS | AUTHZEN


# ---- named schemas ------------------------------------------------------------------------------------------------
# Schemas of requests and responses, by name. Those of requests are generated from their serializers.
#
# Requests may have additional members, which are ignored.

BODIES: dict[str, type[serializers.Serializer]] = {
    "Policy": PolicyBody,
    "Bulk": facts.Bulk,
    "AuthorizeQuery": questions.AuthorizeQuery,
    "Moment": questions.MomentQuery,
    "ActionsQuery": questions.ActionsQuery,
    "ListQuery": questions.ListQuery,
    "AuthorizeResourcesQuery": questions.AuthorizeResourcesQuery,
    "AuthorizeEachQuery": questions.AuthorizeEachQuery,
    "Query": questions.EvaluateQuery,
    "FactQuery": questions.FactQuery,
    "Expectation": questions.Expectation,
    "Evaluation": authzen.Evaluation,
    "Evaluations": authzen.Evaluations,
    "SubjectSearch": authzen.SubjectSearch,
    "ResourceSearch": authzen.ResourceSearch,
    "ActionSearch": authzen.ActionSearch,
    "AuthorizeLocal": local.AuthorizeSql,
    "ActionsLocal": local.ActionsSql,
    "ListLocal": local.ListSql,
    "QueryLocal": local.EvaluateSql,
}


_NAMES = {kind: name for name, kind in BODIES.items()}


def schema_of_body(kind: type[serializers.Serializer] | JsonType | Schema, takes_moment: bool) -> Schema:
    """Return the schema of an endpoint's request body; a reference by name for a serializer."""
    if isinstance(kind, dict):
        return kind
    if isinstance(kind, JsonType):
        return kind.schema
    named = ref(_NAMES[kind])
    return {"allOf": [named, ref("Moment")]} if takes_moment else named


def schema_of(kind: type[serializers.Serializer]) -> Schema:
    """Return the schema of a request body, described by the serializer's docstring and the fields' help texts."""
    required: dict[str, Schema] = {}
    optional: dict[str, Schema] = {}
    for member in kind().fields.values():
        (required if member.required else optional).update(members_of(member))
    return taken(" ".join((kind.__doc__ or "").split()), required, optional)


def members_of(field: serializers.Field) -> dict[str, Schema]:
    """Return the schemas of the members that the field is read from: `{"page_size": {"type": "integer"}}`."""
    members = field.members if isinstance(field, DecodedField) else {str(field.field_name): _schema_of_one(field)}
    described = {"description": str(field.help_text)} if field.help_text else {}
    return {name: schema | described for name, schema in members.items()}


def parameters_of(kind: type[serializers.Serializer]) -> tuple[QueryParameter, ...]:
    """Return the query parameters that the serializer decodes."""
    fields = kind().fields.items()
    return tuple(QueryParameter(name, str(field.help_text), _schema_of_one(field)) for name, field in fields)


def _schema_of_one(field: serializers.Field) -> Schema:
    """Return the schema of one of the framework's fields."""
    if isinstance(field, TextField):
        return field.schema
    assert isinstance(field, serializers.BooleanField), "whoever uses another kind of field says its schema here"
    return {"type": "boolean"}


_EXPLAIN_QUERY: Schema = {
    "description": "The check of `/authorize`, or one solution of `/evaluate_query`.",
    "anyOf": [schema_of(questions.ExplainQuery) | {"not": {"required": ["predicate"]}}, ref("Query")],
}

SHAPES: dict[str, Schema] = (
    facts.SHAPES
    | {name: schema_of(kind) for name, kind in BODIES.items()}
    | questions.SHAPES
    | authzen.SHAPES
    | local.SHAPES
    | {"ExplainQuery": _EXPLAIN_QUERY}
    | ANSWERS
)


# ---- schemas as text ----------------------------------------------------------------------------------------------
# Schema -> text for people, in a self-explanatory notation: `{ type: Name, id: Id }`.

_INDENT = "  "
_SHORT = 80


def shape_text(schema: Schema, depth: int = 0) -> str:
    match schema:
        case {"$ref": target}:
            return str(target).rsplit("/", 1)[-1]
        case {"anyOf": options} | {"oneOf": options}:
            return _options(options, depth)
        case {"const": constant}:
            return json.dumps(constant)
        case {"enum": constants}:
            return " | ".join(map(json.dumps, constants))
        case {"type": "array"}:
            return _array(schema, depth)
        case {"type": "object"}:
            return _object(schema, depth)
        case {"type": list() as names}:
            return " | ".join(names)
        case {"type": name}:
            return str(name)
    return "anything"


def _options(options: list[Schema], depth: int) -> str:
    texts = [shape_text(option, depth) for option in options]
    return " | ".join(dict.fromkeys(texts))


def _array(schema: Schema, depth: int) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(shape_text(item, depth) for item in schema['prefixItems'])}]"
    item = shape_text(schema["items"], depth)
    return f"({item})[]" if " | " in item and "\n" not in item else f"{item}[]"


def _object(schema: Schema, depth: int) -> str:
    members = [_member(name, member, schema, depth + 1) for name, member in schema.get("properties", {}).items()]
    if schema.get("additionalProperties"):
        members.append((f"[any name]: {shape_text(schema['additionalProperties'], depth + 1)}", ""))
    if not members:
        return "object"
    line = f"{{ {', '.join(text for text, _ in members)} }}"
    if len(line) <= _SHORT and "\n" not in line and not any(remark for _, remark in members):
        return line
    lines = [f"{_INDENT * (depth + 1)}{text}{f'  // {remark}' if remark else ''}" for text, remark in members]
    return "\n".join(["{", *lines, f"{_INDENT * depth}}}"])


def _member(name: str, member: Schema, schema: Schema, depth: int) -> tuple[str, str]:
    """Return a member of an object, and the remark that follows it."""
    optional = "" if name in schema.get("required", ()) else "?"
    return f"{name}{optional}: {shape_text(member, depth)}", str(member.get("description", ""))
