"""JSON schemas of requests and responses, by name, and their text form for people."""

import json

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


def _whole(description: str = "", **limits: int) -> Schema:
    return {"type": "integer", **limits, **({"description": description} if description else {})}


def _or_null(kind: str, description: str = "") -> Schema:
    return {"type": [kind, "null"], **({"description": description} if description else {})}


def _map_of(values: Schema, description: str = "") -> Schema:
    described = {"description": description} if description else {}
    return {"type": "object", "additionalProperties": values, **described}


def _found(result: Schema) -> Schema:
    """Return the schema of a page of AuthZEN's search."""
    page = answered("", {"next_token": text("Empty after the last page."), "count": _whole(minimum=0)})
    return answered("", {"results": many(result)}, {"page": page})


_ENTITY = answered("", {"type": text(), "id": text()})
_FACT: dict[str, Schema] = {"predicate": text(), "args": many(_ENTITY, minItems=1, maxItems=MAX_ARGUMENTS)}
_CHANGED_FACT = answered("", _FACT, {"expires_at": text("When the fact expires. Absent if it does not expire.")})
_END = text("When the fact expires, in UTC. Not sent to clients that send `X-OsoApiVersion`.") | {"format": "date-time"}
_REVISION = {
    "revision": _whole(minimum=1),
    "at": text("Commit time in UTC."),
    "author": text("The API key, admin user or command that made the change."),
    "kind": text("`facts`, `load`, `clear`, `copy` or `expiry`."),
    "inserted": many(_CHANGED_FACT, "Includes facts whose expiry changed."),
    "deleted": many(_CHANGED_FACT),
    "policy_version": _or_null("integer", "The version active at that revision."),
}
_KINDS_OF_CHANGES = (
    "`facts`, `load`, `clear`, `copy`, `expiry`, `policy`, `environment`, `upgrade`, or `state` for all facts at a "
    "revision."
)
_NEXT_PAGE = _or_null("string", "null or absent after the last page.")
_STAR = "`*` stands for every value."
_WARNINGS = (
    "Only present if stored facts have roles or relations that the policy does not know. Not sent to clients that send "
    "`X-OsoApiVersion`."
)
_UNREADY = (
    "`draining`: the process is shutting down. `database`: the database does not respond. `form`: the database schema "
    "belongs to another version. Of followers: `snapshot`, `stale`, `clock` or `key`."
)
_PROBLEM = answered("", {"error_type": {"enum": ["ValidationFailed", "AssertionFailed"]}, "message": text()})
_TEST = answered("", {"name": text(), "passed": _whole(), "total": _whole()})
_RESULTS = answered("", {"success": {"const": False}, "errors": many(_PROBLEM), "tests": many(_TEST)})

# Of explanations.
_KINDS = (
    "rule", "part", "fact", "comparison", "absence", "again", "unexplained", "obstacle", "missing", "false", "present",
)  # fmt: skip
_VALUE = answered("", {"type": text(), "id": _or_null("string", "null stands for any value.")})
_GOAL: dict[str, Schema] = {
    "goal": text("The check that is explained."),
    "allowed": {"type": "boolean"},
    "proof": nullable(ref("Reason")),
    "obstacles": many(ref("Reason"), "One per rule that could have granted access."),
    "note": text("Names in the request that the policy does not declare, or a note that no rule matches."),
}
_UNUSED: dict[str, Schema] = {
    "unused_context_facts": many(text(), "Context facts that are not used in policy. Absent if all are used."),
    "complete": {"const": False, "description": "Present if the explanation is incomplete."},
    "message": text("Why the explanation is incomplete."),
}
_WOULD_ALLOW: dict[str, Schema] = {
    "would_allow": answered(
        "The smallest changes, each of which would allow it. Present if requested and access is denied.",
        {
            "changes": many(answered("", {"insert": many(ref("Fact")), "delete": many(ref("Fact"))})),
            "notes": many(text(), "Why there are none, or which stored facts were not considered."),
        },
    )
}
_VERSION: dict[str, Schema] = {"policy_version": _or_null("integer")}
_MARK = answered(
    "A revision. If it is no longer available, only its number is set.",
    {
        "revision": _or_null("integer", "null if it is from before history began."),
        "at": _or_null("string", "In UTC."),
        "author": _or_null("string"),
        "kind": _or_null("string"),
    },
    {"before": _whole("The oldest known revision, if `revision` is null.")},
)
_SINCE = "For a stored fact, or a missing one that was stored before: when it was inserted."
_UNTIL = "For a missing fact that was stored before: when it was deleted or expired."

_OF_METADATA = (
    "policy_decision_point", "access_evaluation_endpoint", "access_evaluations_endpoint", "search_subject_endpoint",
    "search_resource_endpoint", "search_action_endpoint",
)  # fmt: skip

ANSWERS: dict[str, Schema] = {
    # ---- facts
    "History": answered(
        "",
        {
            "results": many(answered("The changes of one revision to matching facts.", _REVISION), "Newest first."),
            "next_page_token": _or_null("string", "null after the last page."),
            "horizon": _whole("History up to this revision is not available.", minimum=0),
        },
    ),
    "StoredFact": answered("", _FACT, {END: _END}),
    "Counts": answered(
        "The number of stored facts.", {name: _whole(minimum=0) for name in ("num_roles", "num_relations", "num_facts")}
    ),
    # ---- changes of facts
    "Changes": answered(
        "",
        {
            "changes": many(ref("Change"), "In revision order, each revision once."),
            "next": {
                "anyOf": [_whole(minimum=0), text()],
                "description": "The `after` of the next request: a revision number, or a token to continue within "
                "a revision.",
            },
            "more": {"type": "boolean", "description": "True if more changes are available now."},
        },
    ),
    "Change": answered(
        "One revision: changes that were committed together.",
        {
            "revision": _whole(minimum=0),
            "at": text("Commit time, by the database's clock."),
            "author": text("An API key, an admin user or a command."),
            "kind": text(_KINDS_OF_CHANGES),
            "inserted": many(_CHANGED_FACT, "Facts that were not stored before, or that have a new expiry."),
            "deleted": many(ref("StoredFact"), "Facts that were stored before."),
            "policy_version": _or_null("integer", "The version that became active, if `kind` is `policy`."),
        },
        {
            "part": _whole("The number of this part, from 1, if the revision comes in parts.", minimum=1),
            "parts": _whole(minimum=1),
        },
    ),
    "BeforeHorizon": answered(
        "The requested changes are no longer available.",
        {"message": text(), "horizon": _whole("The oldest revision that can be used as `after`.")},
    ),
    # ---- checks and queries
    "Decision": answered("", {"allowed": {"type": "boolean"}}),
    "Actions": answered("", {"results": many(text(), f"Sorted. {_STAR}")}),
    "Listing": answered("", {"results": many(text(), f"Ids, sorted. {_STAR}")}, {"next_page_token": _NEXT_PAGE}),
    "Allowed": answered("", {"results": many(_ENTITY, "In the order of the request.")}),
    "Decisions": answered(
        "", {"results": many({"type": "boolean"}, "One result per check, in the order of the request.")}
    ),
    "Solutions": answered(
        "",
        {
            "results": many(
                _map_of(_or_null("string")), "Each solution once: ids by variable. null stands for every value."
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
                        "args": many(answered("", {name: _or_null("string") for name in ("type", "id")})),
                    },
                ),
                "Stored or derived facts. An id of null stands for every value.",
            )
        },
    ),
    "Message": answered("", {"message": text()}),
    "ChangeMade": answered("", {"message": text()}, {"warnings": many(text(), _WARNINGS, minItems=1)}),
    "Unready": answered("", {"message": text(), "reason": text(_UNREADY) | {"enum": ["draining", "database", "form"]}}),
    "Greeting": answered("", {"hello": text(), "api_version": _whole()}),
    "Token": answered("", {"token": text("An API key for the new environment.")}),
    "Sql": answered("", {"sql": text("The SQL to run against your own database.")}),
    # ---- policies
    "ActivePolicy": answered("", {"policy": nullable(answered("", {"src": text(), "filename": _or_null("string")}))}),
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
                {"error_type": {"const": "TestsFailed"}, "message": text(), "test_results": _RESULTS},
            ),
        ],
    },
    "PolicyPreview": answered(
        "",
        {
            "decisions": text("How many decisions would change, and which ones were compared."),
            "differ": _whole("How many of the compared answers differ.", minimum=0),
            "differences": many(
                answered("", {"check": text(), "allowed": {"type": "boolean", "description": "By the new policy."}}),
                "Some of them.",
            ),
            "tests": text("The results of the policy's tests."),
            "failed_tests": many(text(), "Their names."),
            "unused_facts": many(text(), "Kinds of stored facts that the policy does not use."),
        },
    ),
    "Metadata": answered("", {"metadata": answered("", {"resources": _map_of(ref("ResourceMetadata"))})}),
    "ResourceMetadata": answered(
        "What a block declares and inherits. `global` is always present.",
        {"roles": many(text()), "permissions": many(text()), "relations": _map_of(text())},
    ),
    # ---- explanations
    "Explanation": {"anyOf": [ref("ExplainedCheck"), ref("ExplainedQuery")]},
    "ExplainedCheck": answered("", _VERSION | _GOAL, _UNUSED | _WOULD_ALLOW),
    "ExplainedQuery": answered(
        "For a query: a proof or obstacles for each call.",
        _VERSION | {"allowed": {"type": "boolean"}, "calls": many(answered("", _GOAL))},
        _UNUSED,
    ),
    "Reason": answered(
        "One step, with the steps it depends on in `because`.",
        {"kind": {"enum": list(_KINDS)}, "text": text("The step as one line of text.")},
        {
            "fact": answered("", {"predicate": text(), "args": many(_VALUE)}),
            "source": {"enum": ["stored", "context", "policy"]},
            "rule": answered("The rule, as in the policy.", {"text": text(), "line": _or_null("integer")}),
            "bindings": _map_of(_VALUE, "The rule's variables."),
            "met": many(text(), "For an obstacle: the conditions that hold, before the missing one."),
            "note": text(),
            "since": _MARK | {"description": _SINCE},
            "until": _MARK | {"description": _UNTIL},
            "expires_at": text("When the fact expires or expired."),
            "because": many(ref("Reason")),
        },
    ),
    "AccessReview": answered(
        "",
        {
            "results": many(
                answered(
                    "An id of `*` stands for every value that no other result is about.",
                    {
                        "state": text("`has` at one moment; `gained` or `lost`, or `kept`: an exception to those.")
                        | {"enum": ["has", "gained", "lost", "kept"]},
                        "actor": _ENTITY,
                        "action": text(),
                        "resource": _ENTITY,
                    },
                )
            ),
            "not_answered": many(text(), "Access that cannot be listed, with the reason."),
            "next_page_token": _or_null("string", "null after the last page."),
        },
    ),
    # ---- AuthZEN
    "Evaluated": answered(
        "",
        {"decision": {"type": "boolean"}},
        {"context": {"type": "object", "description": "The error of an invalid evaluation, or the explanation."}},
    ),
    "EvaluatedMany": answered(
        "", {"evaluations": many(ref("Evaluated"), "In the order of the request, up to the evaluation that decides.")}
    ),
    "FoundEntities": _found(_ENTITY),
    "FoundActions": _found(answered("", {"name": text()})),
    "AuthZenMetadata": answered("", dict.fromkeys(_OF_METADATA, text())),
}


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
    "AgentEvent": questions.AgentEvent,
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
