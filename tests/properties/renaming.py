"""The same case about users and things of other names."""

from __future__ import annotations

import re
from dataclasses import replace

from policy.values import PRIMITIVES, Value
from tests.properties.questions import (
    Actions,
    Ask,
    Authorize,
    AuthorizeResources,
    Evaluate,
    List,
    QueryFacts,
    Question,
    Refused,
)
from tests.properties.random_policies import Case
from tests.reference import Row

PREFIX = "other "


def renamed(case: Case) -> Case:
    return replace(
        case,
        rules=tuple(_renamed_text(rule, case) for rule in case.rules),
        facts=tuple((predicate, _row(row)) for predicate, row in case.facts),
        context=tuple((predicate, _row(row)) for predicate, row in case.context),
        questions=tuple(Question(_ask(question.ask), question.with_context) for question in case.questions),
    )


def _renamed_text(rule: str, case: Case) -> str:
    """Entity literals are written as their values print, so they can be found as text."""
    written = {str(value): str(_value(value)) for value in case.ids}
    return re.sub("|".join(map(re.escape, written)), lambda found: written[found.group()], rule)


def _value(value: Value) -> Value:
    return value if value.type in PRIMITIVES else Value(value.type, PREFIX + value.id)


def _row(row: Row) -> Row:
    return tuple(map(_value, row))


def _id(type_name: str | None, an_id: str | None) -> str | None:
    return an_id if type_name in PRIMITIVES or an_id is None else PREFIX + an_id


def _ask(ask: Ask) -> Ask:
    match ask:
        case Authorize(actor, action, resource):
            return Authorize(_value(actor), action, _value(resource))
        case Actions(actor, resource):
            return Actions(_value(actor), _value(resource))
        case List(actor, action, resource_type):
            return List(_value(actor), action, resource_type)
        case AuthorizeResources(actor, action, resources):
            return AuthorizeResources(_value(actor), action, _row(resources))
        case Evaluate(calls, constraints):
            return Evaluate(calls, tuple((v, t, ids and tuple(_id(t, i) for i in ids)) for v, t, ids in constraints))
        case QueryFacts(predicate, pattern):
            return QueryFacts(predicate, tuple((t, _id(t, i)) for t, i in pattern))


def renamed_answer(said: object, ask: Ask) -> object:
    """The answer to a renamed question, in the old names."""
    if isinstance(said, Refused | bool):
        return said
    match ask:
        case List():
            return [_old(ask.resource_type, an_id) for an_id in said]
        case AuthorizeResources():
            return [Value(value.type, _old(value.type, value.id)) for value in said]
        case Evaluate():
            kinds = {name: kind for name, kind, _ in ask.constraints}
            return [{name: _old(kinds[name], an_id) for name, an_id in row.items()} for row in said]
        case QueryFacts():
            return [[(kind, _old(kind, an_id)) for kind, an_id in row] for row in said]
    return said


def _old(type_name: str | None, an_id: str | None) -> str | None:
    if an_id is None or type_name in PRIMITIVES or an_id == "*":
        return an_id
    assert an_id.startswith(PREFIX)
    return an_id.removeprefix(PREFIX)
