"""Schemas of what is sent and answered, by name. Those of requests are made from what decodes them.

Requests may have more members than are described, which are ignored.
"""

from rest_framework import serializers

import checks.authzen.entities as authzen
import checks.serializers as questions
import facts.serializers as facts
import localsql.serializers as local
from authz_project.openapi.answers import ANSWERS
from authz_project.openapi.operation import Parameter
from policy.json_schema import Schema, ref, taken
from policy.serializers import DecodedField, PolicyBody, TextField

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


def schema_of(kind: type[serializers.Serializer]) -> Schema:
    """Return the schema of a body: described by its docstring, and each member by its field."""
    required: dict[str, Schema] = {}
    optional: dict[str, Schema] = {}
    for field in kind().fields.values():
        (required if field.required else optional).update(members_of(field))
    return taken(" ".join((kind.__doc__ or "").split()), required, optional)


def members_of(field: serializers.Field) -> dict[str, Schema]:
    """Return what the field is read from: `{"page_size": {"type": "integer"}}`."""
    members = field.members if isinstance(field, DecodedField) else {str(field.field_name): _schema_of_one(field)}
    described = {"description": str(field.help_text)} if field.help_text else {}
    return {name: schema | described for name, schema in members.items()}


def parameters_of(kind: type[serializers.Serializer]) -> tuple[Parameter, ...]:
    """Return the query string that the serializer decodes."""
    fields = kind().fields.items()
    return tuple(Parameter(name, str(field.help_text), _schema_of_one(field)) for name, field in fields)


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
