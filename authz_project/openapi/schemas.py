"""JSON schemas of what endpoints take and answer, by name, and their text for people."""

import json
from typing import Any

from rest_framework import serializers

import checks.serializers as questions
import facts.serializers as facts
import localsql.serializers as local
from checks.authzen import requests as authzen
from facts.models import MAX_ARGUMENTS
from facts.wire import END
from policy.endpoint import QueryParameter, Schema, answered, many, nullable, ref, taken, text
from policy.serializers import DecodedField, JsonType, PolicyBody, TextField

# ---- JSON schemas of what is answered, by name. Answers have exactly the keys that are listed ---------------------

# ---- facts ----------------------------------------------------------------------------------------------------

_ARITY: dict[str, Any] = {"minItems": 1, "maxItems": MAX_ARGUMENTS}

_CHANGED_FACT = answered(
    "",
    {"predicate": text(), "args": many(answered("", {"type": text(), "id": text()}), **_ARITY)},
    {"expires_at": text("From then on it does not count; absent where it has no end.")},
)

FACTS: dict[str, Schema] = {
    "History": answered(
        "",
        {
            "results": many(
                answered(
                    "What one revision did to matching facts.",
                    {
                        "revision": {"type": "integer", "minimum": 1},
                        "at": text("When it was committed, in UTC."),
                        "author": text("Who made it: a key, an admin or a command."),
                        "kind": text("`facts`, `load`, `clear`, `copy` or `expiry`."),
                        "inserted": many(_CHANGED_FACT, "Those whose end it changed are among them."),
                        "deleted": many(_CHANGED_FACT),
                        "policy_version": {
                            "type": ["integer", "null"],
                            "description": "The version that was active then.",
                        },
                    },
                ),
                "Newest first.",
            ),
            "next_page_token": {"type": ["string", "null"], "description": "null after the last page."},
            "horizon": {"type": "integer", "minimum": 0, "description": "What happened up to it is not told."},
        },
    ),
    "StoredFact": answered(
        "",
        {"predicate": text(), "args": many(answered("", {"type": text(), "id": text()}), **_ARITY)},
        {
            END: {
                "type": "string",
                "format": "date-time",
                "description": "From then on it does not count; UTC. Clients that send `X-OsoApiVersion` are not told.",
            }
        },
    ),
    "Counts": answered(
        "How many facts are stored.",
        {name: {"type": "integer", "minimum": 0} for name in ("num_roles", "num_relations", "num_facts")},
    ),
}

# ---- changes of facts -----------------------------------------------------------------------------------------

CHANGES: dict[str, Schema] = {
    "Changes": answered(
        "",
        {
            "changes": many(ref("Change"), "In order, each revision once."),
            "next": {
                "anyOf": [{"type": "integer", "minimum": 0}, text()],
                "description": "The next request's `after`: a revision's number, or a token to go on inside of one.",
            },
            "more": {"type": "boolean", "description": "Whether there is more now."},
        },
    ),
    "Change": answered(
        "A revision: what was committed together.",
        {
            "revision": {"type": "integer", "minimum": 0},
            "at": text("When it was committed, by the database's clock."),
            "author": text("A key, an admin or a command."),
            "kind": text(
                "`facts`, `load`, `clear`, `copy`, `expiry`, `policy`, `environment` or `upgrade`; or `state`: all "
                "facts as of a revision."
            ),
            "inserted": many(_CHANGED_FACT, "Facts that were not there before, or have another end."),
            "deleted": many(ref("StoredFact"), "Facts that were there before."),
            "policy_version": {
                "type": ["integer", "null"],
                "description": "The version that is active from then on, of a revision of the kind `policy`.",
            },
        },
        {
            "part": {"type": "integer", "minimum": 1, "description": "Of a revision that comes in parts, from 1 on."},
            "parts": {"type": "integer", "minimum": 1},
        },
    ),
    "BeforeHorizon": answered(
        "What is asked for was dropped.",
        {"message": text(), "horizon": {"type": "integer", "description": "The oldest revision to go on after."}},
    ),
}

# ---- questions --------------------------------------------------------------------------------------------------

_STAR = "`*` is every one."

QUESTIONS: dict[str, Schema] = {
    "Decision": answered("", {"allowed": {"type": "boolean"}}),
    "Actions": answered("", {"results": many(text(), f"In order. {_STAR}")}),
    "Listing": answered(
        "",
        {"results": many(text(), f"Ids, in order. {_STAR}")},
        {"next_page_token": {"type": ["string", "null"], "description": "null or absent after the last page."}},
    ),
    "Allowed": answered("", {"results": many(answered("", {"type": text(), "id": text()}), "In the order asked.")}),
    "Decisions": answered("", {"results": many({"type": "boolean"}, "One for each check, in their order.")}),
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
    "Unready": answered(
        "",
        {
            "message": text(),
            "reason": {
                "type": "string",
                "enum": ["draining", "database", "form"],
                "description": "The process is about to stop; the database does not answer; or it has another "
                "version's form.",
            },
        },
    ),
    "Greeting": answered("", {"hello": text(), "api_version": {"type": "integer"}}),
    "Token": answered("", {"token": text("The new environment's key.")}),
    "Sql": answered("", {"sql": text("To run against your own database.")}),
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

# ---- explanations ---------------------------------------------------------------------------------------------

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
    "unused_context_facts": many(text(), "Context facts that are not used in policy; absent where all are used."),
    "complete": {"const": False, "description": "Not all of it was looked into; absent where all was."},
    "message": text("Where it is not complete: why."),
}

_MARK = answered(
    "A revision; of one that is not kept any more, only the number is known.",
    {
        "revision": {"type": ["integer", "null"], "description": "null is before revisions were kept."},
        "at": {"type": ["string", "null"], "description": "In UTC."},
        "author": {"type": ["string", "null"]},
        "kind": {"type": ["string", "null"]},
    },
    {"before": {"type": "integer", "description": "Where `revision` is null: the oldest that is known."}},
)

EXPLANATIONS: dict[str, Schema] = {
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
            "since": _MARK | {"description": "Of a stored fact, and of a missing one that was there: when it began."},
            "until": _MARK | {"description": "Of a missing fact that was there: when it ended."},
            "expires_at": text("When the fact ends, or ended, by itself."),
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
        {"context": {"type": "object", "description": "What is wrong with an evaluation, or its explanation."}},
    ),
    "EvaluatedMany": answered(
        "", {"evaluations": many(ref("Evaluated"), "In the order of the request, up to the one that decides.")}
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


# ---- shapes -------------------------------------------------------------------------------------------------------
# Schemas of what is sent and answered, by name. Those of requests are made from what decodes them.
#
# Requests may have more members than are described, which are ignored.

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
    """Return the schema of what an endpoint takes; of a serializer, by its name."""
    if isinstance(kind, dict):
        return kind
    if isinstance(kind, JsonType):
        return kind.schema
    named = ref(_NAMES[kind])
    return {"allOf": [named, ref("Moment")]} if takes_moment else named


def schema_of(kind: type[serializers.Serializer]) -> Schema:
    """Return the schema of a body: described by its docstring, and each member by its field."""
    required: dict[str, Schema] = {}
    optional: dict[str, Schema] = {}
    for member in kind().fields.values():
        (required if member.required else optional).update(members_of(member))
    return taken(" ".join((kind.__doc__ or "").split()), required, optional)


def members_of(field: serializers.Field) -> dict[str, Schema]:
    """Return what the field is read from: `{"page_size": {"type": "integer"}}`."""
    members = field.members if isinstance(field, DecodedField) else {str(field.field_name): _schema_of_one(field)}
    described = {"description": str(field.help_text)} if field.help_text else {}
    return {name: schema | described for name, schema in members.items()}


def parameters_of(kind: type[serializers.Serializer]) -> tuple[QueryParameter, ...]:
    """Return the query string that the serializer decodes."""
    fields = kind().fields.items()
    return tuple(QueryParameter(name, str(field.help_text), _schema_of_one(field)) for name, field in fields)


def _schema_of_one(field: serializers.Field) -> Schema:
    """Return the schema of a field as the framework decodes it."""
    if isinstance(field, TextField):
        return field.schema
    assert isinstance(field, serializers.BooleanField), "whoever uses another kind of field says its schema here"
    return {"type": "boolean"}


_EXPLAIN_QUERY: Schema = {
    "description": "What /authorize was asked, or one solution of /evaluate_query.",
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


# ---- shape text ---------------------------------------------------------------------------------------------------
# Schema -> text for people, in a notation that needs no explanation: `{ type: Name, id: Id }`.

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
    """Return what stands for it, and the remark behind it."""
    optional = "" if name in schema.get("required", ()) else "?"
    return f"{name}{optional}: {shape_text(member, depth)}", str(member.get("description", ""))
