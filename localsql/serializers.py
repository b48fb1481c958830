"""Request bodies of local SQL: `query` has the same form as the body of the corresponding other endpoint."""

from rest_framework import serializers

from checks.serializers import ActionsQuery, AuthorizeQuery, EvaluateQuery, ListQuery, size_from_json
from policy.endpoint import DecodedField, JsonType, Schema, decoded, ref, taken, text
from policy.errors import MalformedRequest

_COLUMN = text("The column with the ids in your query, such as `id` or `repository.id`.")

# Schemas for `ref`, in addition to those of the other endpoints.
SHAPES: dict[str, Schema] = {
    "Mode": {
        "oneOf": [
            taken(
                "A statement with one column per variable. Without variables, it returns one row: whether a "
                "solution exists.",
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

# ---- members ---------------------------------------------------------------------------------------------------


def bindings_from_json(raw: object, path: str) -> str:
    if not isinstance(raw, str):
        raise MalformedRequest(path, "must be a string with a YAML document, or null")
    return raw


def mode_from_json(raw: object, path: str) -> dict:
    """Validate the form of the SQL: a statement, or a condition."""
    if not isinstance(raw, dict):
        raise MalformedRequest(path, 'must be an object with "mode"')
    match raw.get("mode"):
        case "select":
            columns = raw.get("query_vars_to_output_column_names")
            if not isinstance(columns, dict):
                raise MalformedRequest(
                    f"{path}.query_vars_to_output_column_names", "must be an object that maps variables to column names"
                )
        case "filter":
            if not isinstance(raw.get("query_var"), str):
                raise MalformedRequest(f"{path}.query_var", "must be a variable name")
        case _:
            raise MalformedRequest(f"{path}.mode", 'must be "select" or "filter"')
    return raw


def list_query_from_json(raw: object, path: str) -> dict:
    """Validate the query. Paging has no effect here, but clients send its members, which must be valid."""
    query = decoded(ListQuery, raw, path)
    if not isinstance(query["page_token"], str | None):
        raise MalformedRequest(f"{path}.page_token", "must be a string or null")
    if query["page_size"] is not None:
        size_from_json(query["page_size"], f"{path}.page_size")
    return query


def column_from_json(raw: object, path: str) -> object:
    """Return the value unchanged: valid column names depend on the dialect, and are checked later."""
    return raw


MODE = JsonType(mode_from_json, ref("Mode"))
COLUMN = JsonType(column_from_json, _COLUMN)
LIST_QUERY = JsonType(list_query_from_json, ref("ListQuery"))


def query_field(kind: type[serializers.Serializer], name: str) -> DecodedField:
    return DecodedField(JsonType(lambda raw, path: decoded(kind, raw, path), ref(name)))


def bindings_field() -> DecodedField:
    kind = JsonType(bindings_from_json, {"type": "string"})
    return DecodedField(kind, optional=True, help_text="A YAML document that maps facts to your tables.")


# ---- bodies ----------------------------------------------------------------------------------------------------


class AuthorizeSql(serializers.Serializer):
    query = query_field(AuthorizeQuery, "AuthorizeQuery")
    data_bindings = bindings_field()


class ActionsSql(serializers.Serializer):
    query = query_field(ActionsQuery, "ActionsQuery")
    data_bindings = bindings_field()


class ListSql(serializers.Serializer):
    query = DecodedField(LIST_QUERY)
    column = DecodedField(COLUMN)
    data_bindings = bindings_field()


class EvaluateSql(serializers.Serializer):
    query = query_field(EvaluateQuery, "Query")
    mode = DecodedField(MODE)
    data_bindings = bindings_field()
