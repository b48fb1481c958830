"""Endpoints that return SQL for the caller's own database.

In their bodies, `query` has the same form as the body of the corresponding other endpoint.
"""

from abc import abstractmethod
from typing import ClassVar

from rest_framework import serializers

from checks.asking.question import Asked, Query, Question, allow
from checks.serializers import MOMENT, ActionsQuery, AuthorizeQuery, EvaluateQuery, ListQuery, size_from_json
from checks.views import Answering, Reply
from localsql import asking
from localsql.asking import LocalSql
from policy.active import Caller
from policy.endpoint import DecodedField, Doc, JsonType, Request, Schema, decoded, ref, taken, text
from policy.errors import MalformedRequest
from policy.values import STRING

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


MODE = JsonType(mode_from_json, ref("Mode"))
COLUMN = JsonType(lambda raw, path: raw, _COLUMN)  # valid names depend on the dialect, and are checked later
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


# ---- endpoints -----------------------------------------------------------------------------------------------------


def question_of(query: dict, action: Asked, resource: Asked, outs: tuple[str, ...] = ()) -> Question:
    return allow(query["actor"], action, resource, outs, query["context_facts"])


def check_is_of_now(body: object) -> None:
    """Reject a body that asks about another time or policy version: local SQL uses the current ones."""
    parts = {"": body, "query.": body.get("query") if isinstance(body, dict) else None}
    for path, asked in parts.items():
        if isinstance(asked, dict) and (name := next((each for each in MOMENT if asked.get(each) is not None), "")):
            reason = "not supported for local SQL, which uses the current facts and the active policy; remove it"
            raise MalformedRequest(f"{path}{name}", reason)


class LocalAnswering(Answering):
    takes_moment, is_of_now = False, True

    def reply(self, request: Request, who: Caller) -> Reply:
        check_is_of_now(request.data)
        local = self.sql(decoded(self.body, request.data), who)
        return {"sql": local.sql}, local

    @abstractmethod
    def sql(self, body: dict, who: Caller) -> LocalSql:
        """Return the SQL that the body asks for."""


class LocalAuthorize(LocalAnswering):
    body = AuthorizeSql
    docs: ClassVar = {
        "POST": Doc(
            "Check access with local SQL",
            ref("Sql"),
            "Returns a statement with one row and one column, `allowed`.",
        )
    }

    def sql(self, body: dict, who: Caller) -> LocalSql:
        question = question_of(body["query"], body["query"]["action"], body["query"]["resource"])
        return asking.authorize(who, question, body["data_bindings"])


class LocalActions(LocalAnswering):
    body = ActionsSql
    docs: ClassVar = {
        "POST": Doc(
            "List actions with local SQL",
            ref("Sql"),
            "Returns a statement with one row per action, in the column `actions`.",
        )
    }

    def sql(self, body: dict, who: Caller) -> LocalSql:
        question = question_of(body["query"], Asked(STRING), body["query"]["resource"], ("action",))
        return asking.actions(who, question, body["data_bindings"])


class LocalList(LocalAnswering):
    """Pages mean nothing here: the caller's own statement has its own LIMIT."""

    body = ListSql
    docs: ClassVar = {
        "POST": Doc(
            "List resources with local SQL",
            ref("Sql"),
            "Returns a condition for the `WHERE` clause of your query. `page_size` and `page_token` are ignored.",
        )
    }

    def sql(self, body: dict, who: Caller) -> LocalSql:
        resource = Asked(body["query"]["resource_type"])
        question = question_of(body["query"], body["query"]["action"], resource, ("resource",))
        return asking.filtered(who, question, body["data_bindings"], body["column"])


class LocalEvaluate(LocalAnswering):
    body = EvaluateSql
    docs: ClassVar = {
        "POST": Doc(
            "Query the policy with local SQL",
            ref("Sql"),
            "Returns a statement or a condition, depending on `mode`.",
        )
    }

    def sql(self, body: dict, who: Caller) -> LocalSql:
        asked, mode = body["query"], body["mode"]
        query = Query.of((asked["predicate"], *asked["calls"]), asked["constraints"], asked["context_facts"])
        if mode["mode"] == "select":
            columns = mode["query_vars_to_output_column_names"]
            return asking.selected(who, query.asking_for(columns), body["data_bindings"], columns)
        question = query.asking_for((mode["query_var"],))
        path = "mode.output_column_name"
        return asking.filtered(who, question, body["data_bindings"], mode.get("output_column_name"), path)


endpoints = {
    "authorize_query": LocalAuthorize(),
    "list_query": LocalList(),
    "actions_query": LocalActions(),
    "evaluate_query_local": LocalEvaluate(),
}
