"""Reads a line of the log: the questions that it asked, and the goals that hold according to its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import checks.authzen.lines as authzen
from checks.asking.query import Query, allow
from checks.asking.question import Asked, Question
from checks.decisions.answers import Summary
from checks.decisions.lines import Line
from checks.engine.answers import Row
from checks.explain.cases import Goal
from checks.serializers import (
    ACTIONS_QUERIES,
    ActionsQuery,
    AuthorizeEachQuery,
    AuthorizeQuery,
    AuthorizeResourcesQuery,
    EvaluateQuery,
    FactQuery,
    ListQuery,
)
from checks.views import actions_question, explained_question
from checks.workbench.given import Given, goals_of
from facts.wire import fact_from_json
from policy.errors import AuthzError
from policy.rules.program import Program
from policy.serializers import decoded


class NoQuestion(AuthzError):
    """The endpoint answers with SQL, so the decision is made elsewhere."""

    def __init__(self, endpoint: str):
        super().__init__(f"what `{endpoint}` answers is decided by the caller's own database")


# ---- what was asked ------------------------------------------------------------------------------------------------


def given_by(line: Line) -> Given:
    """Return what the policy of then was asked; raise an `AuthzError` if the endpoint does not take the body."""
    return given_for(line, authzen.program_of_then(line) if authzen.is_of_authzen(line) else None)


def given_for(line: Line, program: Program | None) -> Given:
    """Return the same as it is asked of a program, which says what properties of AuthZEN count (None: none do)."""
    if authzen.is_of_authzen(line):
        return authzen.given_for(line, program)
    read = _READERS.get(line.endpoint)
    if read is None:
        raise NoQuestion(line.endpoint)
    return read(line.question)


def _one(question: Question) -> Given:
    return Given((question,), context=question.context)


def _authorize(raw: object) -> Given:
    body = decoded(AuthorizeQuery, raw)
    return _one(allow(body["actor"], body["action"], body["resource"], (), body["context_facts"]))


def _list(raw: object) -> Given:
    body = decoded(ListQuery, raw)
    resource = Asked(body["resource_type"])
    return _one(allow(body["actor"], body["action"], resource, ("resource",), body["context_facts"]))


def _authorize_resources(raw: object) -> Given:
    body = decoded(AuthorizeResourcesQuery, raw)
    resources = dict.fromkeys(body["resources"])
    context = body["context_facts"]
    asked = [allow(body["actor"], body["action"], Asked(each.type, (each.id,)), (), context) for each in resources]
    return Given(tuple(asked), context=context)


def _authorize_each(raw: object) -> Given:
    body = decoded(AuthorizeEachQuery, raw)
    context = body["context_facts"]
    asked = [allow(actor, action, resource, (), context) for actor, action, resource in body["checks"]]
    return Given(tuple(asked), context=context)


def _evaluate_query(raw: object) -> Given:
    body = decoded(EvaluateQuery, raw)
    return _one(Query.of((body["predicate"], *body["calls"]), body["constraints"], body["context_facts"]).question)


def _query(raw: object) -> Given:
    body = decoded(FactQuery, raw)
    return Given((), body["fact"], body["context_facts"])


def _bulk_actions(raw: object) -> Given:
    bodies = ACTIONS_QUERIES.decode(raw, "")
    context = bodies[0]["context_facts"] if bodies else ()
    return Given(tuple([actions_question(body)._replace(context=context) for body in bodies]), context=context)


_READERS: dict[str, Callable[[object], Given]] = {
    "authorize": _authorize,
    "actions": lambda raw: _one(actions_question(decoded(ActionsQuery, raw))),
    "list": _list,
    "authorize_resources": _authorize_resources,
    "authorize_each": _authorize_each,
    "evaluate_query": _evaluate_query,
    "query": _query,
    "bulk_actions": _bulk_actions,
    "explain": lambda raw: _one(explained_question(raw)),
}


# ---- what was answered ---------------------------------------------------------------------------------------------


def claims_of(line: Line, given: Given, answer: Summary) -> set[Goal]:
    """Return the goals that hold according to the answer, as far as the log keeps it."""
    if line.endpoint == "query":
        facts = [fact_from_json(each, "") for each in answer["results"] if all(arg["id"] for arg in each["args"])]
        return {Goal(fact.predicate, fact.args) for fact in facts}
    found = ((question, row) for question, rows in _rows(line, given, answer) for row in rows)
    return {goal for question, row in found for goal in goals_of(question, row)}


def _rows(line: Line, given: Given, answer: Summary) -> list[tuple[Question, list[Row]]]:
    questions = given.questions
    results: list[Any] = answer.get("results", [])
    if authzen.is_of_authzen(line):
        found = authzen.answers_of(line, answer)
        if questions[0].outs:
            return [(questions[0], [_row(str(text)) for text in found])]
        return [(question, [()]) for question, is_allowed in zip(questions, found) if is_allowed]
    match line.endpoint:
        case "authorize" | "explain":
            return [(questions[0], [()])] if answer["allowed"] else []
        case "actions" | "list":
            return [(questions[0], [_row(text) for text in results])]
        case "authorize_resources":
            allowed = {(each["type"], each["id"]) for each in results}
            return [(each, [()]) for each in questions if _resource(each) in allowed]
        case "authorize_each":
            return [(question, [()]) for question, is_allowed in zip(questions, results) if is_allowed]
        case "bulk_actions":
            return [(question, [_row(text) for text in texts]) for question, texts in zip(questions, results)]
        case "evaluate_query":
            (question,) = questions
            names = [question.called(name) for name in question.outs]
            return [(question, [tuple([each[name] for name in names]) for each in results])]
    raise NoQuestion(line.endpoint)


def _row(text: str) -> Row:
    return (None if text == "*" else text,)


def _resource(question: Question) -> tuple[str, str]:
    asked = question.variables["resource"]
    return asked.type, asked.one
