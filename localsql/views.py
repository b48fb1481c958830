"""The endpoints that answer with SQL for the caller's own database."""

from checks.asking.query import Query, allow
from checks.asking.question import Asked, Question
from facts.context_header import answer
from localsql import asking
from localsql.asking import Said
from localsql.serializers import ActionsSql, AuthorizeSql, EvaluateSql, ListSql
from policy.endpoint import Endpoint, Request, Response, caller
from policy.serializers import decoded
from policy.values import STRING


def question_of(query: dict, action: Asked, resource: Asked, outs: tuple[str, ...] = ()) -> Question:
    return allow(query["actor"], action, resource, outs, query["context_facts"])


def sql_answer(request: Request, said: Said) -> Response:
    return answer(request, {"sql": said.sql}, said.unused)


class Authorize(Endpoint):
    def post(self, request: Request) -> Response:
        who, body = caller(request), decoded(AuthorizeSql, request.data)
        question = question_of(body["query"], body["query"]["action"], body["query"]["resource"])
        return sql_answer(request, asking.authorize(who, question, body["data_bindings"]))


class Actions(Endpoint):
    def post(self, request: Request) -> Response:
        who, body = caller(request), decoded(ActionsSql, request.data)
        question = question_of(body["query"], Asked(STRING), body["query"]["resource"], ("action",))
        return sql_answer(request, asking.actions(who, question, body["data_bindings"]))


class List(Endpoint):
    """Pages mean nothing here: the caller's own statement has its own LIMIT."""

    def post(self, request: Request) -> Response:
        who, body = caller(request), decoded(ListSql, request.data)
        resource = Asked(body["query"]["resource_type"])
        question = question_of(body["query"], body["query"]["action"], resource, ("resource",))
        return sql_answer(request, asking.filtered(who, question, body["data_bindings"], body["column"]))


class Evaluate(Endpoint):
    def post(self, request: Request) -> Response:
        who, body = caller(request), decoded(EvaluateSql, request.data)
        asked, mode = body["query"], body["mode"]
        query = Query.of((asked["predicate"], *asked["calls"]), asked["constraints"], asked["context_facts"])
        if mode["mode"] == "select":
            columns = mode["query_vars_to_output_column_names"]
            return sql_answer(request, asking.selected(who, query.asking_for(columns), body["data_bindings"], columns))
        question = query.asking_for((mode["query_var"],))
        path = "mode.output_column_name"
        column = mode.get("output_column_name")
        return sql_answer(request, asking.filtered(who, question, body["data_bindings"], column, path))
