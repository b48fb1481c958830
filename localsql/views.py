"""Endpoints that return SQL for the caller's own database."""

from abc import abstractmethod
from typing import ClassVar

from checks.asking.question import Asked, Query, Question, allow
from checks.serializers import MOMENT
from checks.views import Answering, Reply
from localsql import asking
from localsql.asking import LocalSql
from localsql.serializers import ActionsSql, AuthorizeSql, EvaluateSql, ListSql
from policy.active import Caller
from policy.endpoint import Doc, Request, decoded, ref
from policy.errors import MalformedRequest
from policy.values import STRING


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
        local = self.sql(request.data, who)
        return {"sql": local.sql}, local

    @abstractmethod
    def sql(self, raw: object, who: Caller) -> LocalSql:
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

    def sql(self, raw: object, who: Caller) -> LocalSql:
        body = decoded(self.body, raw)
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

    def sql(self, raw: object, who: Caller) -> LocalSql:
        body = decoded(self.body, raw)
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

    def sql(self, raw: object, who: Caller) -> LocalSql:
        body = decoded(self.body, raw)
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

    def sql(self, raw: object, who: Caller) -> LocalSql:
        body = decoded(self.body, raw)
        asked, mode = body["query"], body["mode"]
        query = Query.of((asked["predicate"], *asked["calls"]), asked["constraints"], asked["context_facts"])
        if mode["mode"] == "select":
            columns = mode["query_vars_to_output_column_names"]
            return asking.selected(who, query.asking_for(columns), body["data_bindings"], columns)
        question = query.asking_for((mode["query_var"],))
        path = "mode.output_column_name"
        return asking.filtered(who, question, body["data_bindings"], mode.get("output_column_name"), path)
