"""Endpoints that answer questions, explain answers, or accept expected ones."""

from functools import partial
from typing import ClassVar

from checks.answering import Answering, Asking, Reply
from checks.asking import ask, by_rows, paging
from checks.asking.question import Asked, Query, Question, allow, by_ids
from checks.engine.answers import AnswerRow
from checks.explain import explain
from checks.explain.explain import explanation_to_json
from checks.serializers import (
    ACTIONS_QUERIES,
    MOMENT,
    ActionsQuery,
    AuthorizeEachQuery,
    AuthorizeQuery,
    AuthorizeResourcesQuery,
    EvaluateQuery,
    Expectation,
    ExplainQuery,
    FactQuery,
    ListQuery,
    MomentQuery,
    any_value,
)
from policy.active import Caller
from policy.core.journal import current_offset
from policy.endpoint import Doc, Request, Response, caller, changed, decoded, is_published_client, many, ref
from policy.errors import MalformedRequest
from policy.moments import Moment, moment_of
from policy.values import STRING

ANY_ACTION = Asked(STRING)


class Authorize(Answering):
    body = AuthorizeQuery
    docs: ClassVar = {"POST": Doc("Check access", ref("Decision"))}

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        question = allow(body["actor"], body["action"], body["resource"], (), body["context_facts"])
        found = ask.answer(who, question, moment=moment_asked(request, who))
        return {"allowed": found.holds}, found


class Actions(Answering):
    body = ActionsQuery
    docs: ClassVar = {"POST": Doc("List actions", ref("Actions"))}

    def reply(self, request: Request, who: Caller) -> Reply:
        question = actions_question(decoded(self.body, request.data))
        found = ask.answer(who, question, moment=moment_asked(request, who))
        return {"results": names(found.of_one)}, found


class List(Answering):
    body = ListQuery
    docs: ClassVar = {
        "POST": Doc(
            "List resources",
            ref("Listing"),
            "Results are complete, in pages. A page token continues the same query after the last id of the "
            "previous page.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        resource = Asked(body["resource_type"])
        question = allow(body["actor"], body["action"], resource, ("resource",), body["context_facts"])
        of, moment = partial(paging.list_of, who.environment_id, question), moment_asked(request, who)
        wanted = paging.page_request_from_json(
            body["page_size"], body["page_token"], of, is_published_client(request), moment,
            is_as_of=request.data.get("as_of") is not None,
        )  # fmt: skip
        page = paging.page_of(
            who,
            of,
            wanted,
            lambda then: ask.answer(who, question, wanted.page, then or wanted.moment),
            lambda found: [row[0] for row in found.of_one],
        )
        return paging.page_to_json(page, wanted), page.found

    def least(self, request: Request) -> int:
        return paging.least_of(request.data.get("page_token"))


class AuthorizeResources(Answering):
    body = AuthorizeResourcesQuery
    docs: ClassVar = {
        "POST": Doc(
            "Filter resources",
            ref("Allowed"),
            "Returns the resources on which the actor may perform the action, in the order of the request and "
            "with its duplicates.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        asked = (body["actor"], body["action"], body["resources"], body["context_facts"])
        allowed, found = ask.allowed_among(who, *asked, moment_asked(request, who))
        return {"results": [{"type": value.type, "id": value.id} for value in allowed]}, found


class AuthorizeEach(Answering):
    body = AuthorizeEachQuery
    docs: ClassVar = {
        "POST": Doc(
            "Check access in bulk",
            ref("Decisions"),
            "Checks for any actors, actions and resources, evaluated at the same revision. If one check is "
            "invalid or too complex, the whole request is rejected.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        moment = moment_asked(request, who)
        allowed, found = by_rows.allowed_each(who, body["checks"], body["context_facts"], moment)
        return {"results": allowed}, found


class Evaluate(Answering):
    body = EvaluateQuery
    docs: ClassVar = {
        "POST": Doc(
            "Query the policy",
            ref("Solutions"),
            "Calls are joined on the variables they share. Every variable has a constraint, which gives its type "
            "and, optionally, its values.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        query = Query.of((body["predicate"], *body["calls"]), body["constraints"], body["context_facts"])
        found = ask.answer(who, query.question, moment=moment_asked(request, who))
        return {"results": query.results(found.of_one)}, found


class QueryEndpoint(Answering):
    """The first version of the query."""

    body = FactQuery
    docs: ClassVar = {
        "POST": Doc(
            "Query stored and derived facts",
            ref("FoundFacts"),
            deprecated_for="POST /api/evaluate_query",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        moment = moment_asked(request, who)
        found = by_rows.find_facts(who, body["fact"], body["context_facts"], moment)
        return {"results": by_rows.facts_to_json(body["fact"], found)}, found


class BulkActions(Answering):
    """Context facts and the moment come with the first element, and count for all."""

    body = ACTIONS_QUERIES
    docs: ClassVar = {
        "POST": Doc(
            "List actions in bulk",
            many(ref("Actions")),
            "The context facts, `as_of` and `policy_version` of the first query apply to all.",
            deprecated_for="POST /api/actions",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        bodies = self.body.decode(request.data, "")
        context = bodies[0]["context_facts"] if bodies else ()
        moment = moment_of_many(request.data, who)
        found = by_rows.answered_each(who, [actions_question(body) for body in bodies], context, moment)
        return [{"results": names(rows)} for rows in found.of_each], found


class Explain(Answering):
    """Why one answer is as it is: the body of /authorize, or of /evaluate_query with one value for each variable."""

    body: ClassVar = {"allOf": [ref("ExplainQuery"), ref("Moment")]}
    docs: ClassVar = {
        "POST": Doc(
            "Explain a decision",
            ref("Explanation"),
            "Returns why access is allowed (a proof of rules and facts), or why it is denied: for each rule that "
            "could have granted access, how far it matched and what is missing. Stored facts include when they "
            "were stored and by whom; missing facts that were stored before include when they were deleted and by "
            "whom. All statements read one snapshot. An explanation takes up to about three times as long as the "
            "decision; if it needs more, `complete` is false and the rest is marked `unexplained`. In a query, "
            "every variable must have one id, or null for any.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        is_query = isinstance(request.data, dict) and "predicate" in request.data
        explanation = explain.explain(who, explained_question(request.data), moment_asked(request, who))
        return explanation_to_json(explanation, is_query), explanation


class Expect(Asking):
    """What a caller expected of an answer. Nothing is kept, and an unknown answer is fine."""

    body = Expectation
    docs: ClassVar = {
        "POST": Doc(
            "Record an expected result",
            ref("Message"),
            "`request_id` is the `X-Request-ID` of the response. Accepted for compatibility; nothing is stored.",
            has_offset=True,
        )
    }

    def post(self, request: Request) -> Response:
        decoded(self.body, request.data)
        return changed("noted", current_offset(caller(request).environment_id))


def moment_asked(request: Request, who: Caller) -> Moment | None:
    """Return the moment in the body; None for now, which is usual."""
    body = request.data
    return _moment_in(body, who, "") if isinstance(body, dict) else None


def moment_of_many(bodies: list[dict], who: Caller) -> Moment | None:
    """Return the moment of all questions of a request: that of the first, from which no other may differ."""
    if all(body.keys().isdisjoint(MOMENT) for body in bodies):
        return None
    for index, body in enumerate(bodies):
        for name in MOMENT:
            if body.get(name) not in (None, bodies[0].get(name)):
                raise MalformedRequest(f"[{index}].{name}", "must be the same as in the first query")
    return _moment_in(bodies[0], who, "[0]")


def _moment_in(body: dict, who: Caller, path: str) -> Moment | None:
    if body.keys().isdisjoint(MOMENT):
        return None
    asked = decoded(MomentQuery, body, path)
    return moment_of(who.environment_id, asked["as_of"], asked["policy_version"])


# ---- helpers -------------------------------------------------------------------------------------------------


def actions_question(body: dict) -> Question:
    return allow(body["actor"], ANY_ACTION, body["resource"], ("action",), body["context_facts"])


def explained_question(raw: object) -> Question:
    if isinstance(raw, dict) and "predicate" in raw:
        return solution(decoded(EvaluateQuery, raw))
    body = decoded(ExplainQuery, raw)
    return allow(body["actor"], body["action"], body["resource"], (), body["context_facts"])


def solution(body: dict) -> Question:
    """Return the question with one value for each variable; null stands for any value. Several ids are an error."""
    question = Query.of((body["predicate"], *body["calls"]), body["constraints"], body["context_facts"]).question
    variables = {}
    for name, asked in question.variables.items():
        path = f"constraints.{question.called(name)}"
        if asked.ids is not None and len(asked.ids) != 1:
            raise MalformedRequest(f"{path}.ids", "must be one id, or null for any")
        variables[name] = asked if asked.ids else any_value(asked.type, path)
    return question._replace(variables=variables, outs=())


def names(rows: list[AnswerRow]) -> list[str]:
    return ["*" if name is None else name for (name,) in sorted(rows, key=by_ids)]
