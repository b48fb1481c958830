"""Shapes of bodies: the question is that of the other endpoints, under `query`."""

from rest_framework import serializers

from checks.serializers import (
    ActionsQuery,
    AuthorizeQuery,
    DecodedField,
    EvaluateQuery,
    ListQuery,
    decoded,
    size_from_json,
)
from policy.errors import MalformedRequest


def QueryField(kind: type[serializers.Serializer]) -> DecodedField:
    return DecodedField(lambda raw, path: decoded(kind, raw, path))


def text_or_null(raw: object, path: str) -> str | None:
    if raw is not None and not isinstance(raw, str):
        raise MalformedRequest(path, "must be the text of a YAML document, or null")
    return raw


def mode(raw: object, path: str) -> dict:
    """Which form the SQL is to have."""
    if not isinstance(raw, dict):
        raise MalformedRequest(path, 'must be an object with "mode"')
    match raw.get("mode"):
        case "select":
            columns = raw.get("query_vars_to_output_column_names")
            if not isinstance(columns, dict):
                raise MalformedRequest(
                    f"{path}.query_vars_to_output_column_names", "must be an object from variables to column names"
                )
        case "filter":
            if not isinstance(raw.get("query_var"), str):
                raise MalformedRequest(f"{path}.query_var", "must be the name of a variable")
        case _:
            raise MalformedRequest(f"{path}.mode", 'must be "select" or "filter"')
    return raw


def anything(raw: object, path: str) -> object:
    return raw


class AuthorizeSql(serializers.Serializer):
    query = QueryField(AuthorizeQuery)
    data_bindings = DecodedField(text_or_null)


class ActionsSql(serializers.Serializer):
    query = QueryField(ActionsQuery)
    data_bindings = DecodedField(text_or_null)


def list_query(raw: object, path: str) -> dict:
    """Pages mean nothing here; but clients send what there is to say about them, and it must have its form."""
    query = decoded(ListQuery, raw, path)
    if not isinstance(query["page_token"], str | None):
        raise MalformedRequest(f"{path}.page_token", "must be a string or null")
    if query["page_size"] is not None:
        size_from_json(query["page_size"], f"{path}.page_size")
    return query


class ListSql(serializers.Serializer):
    query = DecodedField(list_query)
    data_bindings = DecodedField(text_or_null)
    column = DecodedField(anything)


class EvaluateSql(serializers.Serializer):
    query = QueryField(EvaluateQuery)
    data_bindings = DecodedField(text_or_null)
    mode = DecodedField(mode)
