"""How the property tests ask the service: through its views, in this process, with a key.

Answers come back as `questions.meaning` takes them, errors as `Refused`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis.errors import UnsatisfiedAssumption
from rest_framework.test import APIClient

from checks.asking.question import FEW
from policy.values import Value
from tests.properties.questions import (
    Actions,
    Ask,
    Authorize,
    AuthorizeEach,
    AuthorizeResources,
    Evaluate,
    Explain,
    List,
    QueryFacts,
    Refused,
)
from tests.reference import Row

Fact = tuple[str, Row]
LARGEST_PAGE = 10_000
client = APIClient(raise_request_exception=False)  # one for all: a new one reads the list of static files
LIMITS = {
    "a fifth of STATEMENT_TIMEOUT": "query planning exceeds",
    "Integers that no fact has": "the rules compare Integers that no fact has",
    "STATEMENT_TIMEOUT": "the query took longer than",
    "what the database takes": "the query is too large for the database",
}
GIVEN_UP = "it takes longer than"  # what an explanation says in the place of a part


@dataclass(frozen=True)
class Caller:
    """An environment's key, and what comes along with each question: facts, and of which moment and policy it is."""

    key: str
    context: tuple[Fact, ...] = ()
    as_of: int | str | None = None
    policy_version: int | None = None


class PastLimit(UnsatisfiedAssumption):
    """The question passes a limit, which is named: neither right nor wrong, and nothing to compare."""


class PolicyRefused(Exception):
    """The service does not take the policy."""


# ---- setting up -----------------------------------------------------------------------------------------


def publish(caller: Caller, policy: str) -> None:
    said = _post(caller, "/policy", {"src": policy, "filename": ""})
    if isinstance(said, Refused):
        raise PolicyRefused(said.message)


def store(caller: Caller, facts: Iterable[Fact]) -> None:
    said = _post(caller, "/batch", [{"inserts": [_fact(fact) for fact in facts]}])
    assert not isinstance(said, Refused), said.message


# ---- asking ---------------------------------------------------------------------------------------------


def ask(caller: Caller, question: Ask) -> Any:
    match question:
        case Authorize(actor, action, resource):
            return authorize(caller, actor, action, resource)
        case Actions(actor, resource, in_bulk):
            return bulk_actions(caller, actor, resource) if in_bulk else actions(caller, actor, resource)
        case List(actor, action, resource_type):
            return list_(caller, actor, action, resource_type)
        case AuthorizeResources(actor, action, resources):
            return authorize_resources(caller, actor, action, resources)
        case AuthorizeEach(checks):
            return authorize_each(caller, checks)
        case Evaluate():
            return evaluate_query(caller, question)
        case QueryFacts(predicate, pattern):
            return query1(caller, predicate, pattern)
        case Explain(predicate, row):
            return explain(caller, predicate, row)


def authorize(caller: Caller, actor: Value, action: str, resource: Value) -> bool | Refused:
    body = {"action": action, "resource_type": resource.type, "resource_id": resource.id}
    return _member(_post(caller, "/authorize", _who(caller, actor) | body), "allowed")


def actions(caller: Caller, actor: Value, resource: Value) -> list[str] | Refused:
    body = {"resource_type": resource.type, "resource_id": resource.id}
    return _member(_post(caller, "/actions", _who(caller, actor) | body), "results")


def bulk_actions(caller: Caller, actor: Value, resource: Value) -> list[str] | Refused:
    """Between questions about others, of other types too; the first one brings the facts for all."""
    pairs = ((actor, Value(resource.type, "another")), (actor, resource), (resource, actor), (actor, resource))
    bodies = [{"resource_type": each.type, "resource_id": each.id} | _who(caller, who) for who, each in pairs]
    said = _post(caller, "/bulk_actions", [bodies[0], *({**body, "context_facts": []} for body in bodies[1:])])
    if isinstance(said, Refused):
        return said
    assert said[1] == said[3], "the same to the same"
    return said[1]["results"]


def list_(caller: Caller, actor: Value, action: str, resource_type: str) -> list[str] | Refused:
    body = {"action": action, "resource_type": resource_type, "page_size": LARGEST_PAGE}
    said = _post(caller, "/list", _who(caller, actor) | body)
    assert isinstance(said, Refused) or said["next_page_token"] is None, "these lists fit into one page"
    return _member(said, "results")


def authorize_resources(caller: Caller, actor: Value, action: str, resources: tuple[Value, ...]) -> list | Refused:
    """As they are, and among many others, which is another way to the same answer."""
    found = _allowed_of(caller, actor, action, resources)
    others = {Value(value.type, f"another {n}") for value in resources for n in range(FEW + 1)}
    among = _allowed_of(caller, actor, action, (*resources, *others))
    among = among if isinstance(among, Refused) else [value for value in among if value not in others]
    return found if found == among else among


def _allowed_of(caller: Caller, actor: Value, action: str, resources: tuple[Value, ...]) -> list | Refused:
    body = {"action": action, "resources": [_value(value) for value in resources]}
    found = _member(_post(caller, "/authorize_resources", _who(caller, actor) | body), "results")
    return found if isinstance(found, Refused) else [Value(**value) for value in found]


def authorize_each(caller: Caller, checks: tuple[tuple[Value, str, Value], ...]) -> list[bool] | Refused:
    """All of them; and some, which must be answered as among all."""
    found, fewer = _each_of(caller, checks), _each_of(caller, checks[1::2])
    if isinstance(found, Refused) or isinstance(fewer, Refused):
        return found
    assert fewer == found[1::2], "an answer does not depend on what else is asked"
    return found


def _each_of(caller: Caller, checks: tuple[tuple[Value, str, Value], ...]) -> list[bool] | Refused:
    each = [{"actor": _value(a), "action": action, "resource": _value(r)} for a, action, r in checks]
    return _member(_post(caller, "/authorize_each", {"checks": each, "context_facts": _context(caller)}), "results")


def evaluate_query(caller: Caller, query: Evaluate) -> list[dict[str, str | None]] | Refused:
    first, *calls = query.calls
    constraints = {name: {"type": kind, "ids": ids} for name, kind, ids in query.constraints}
    body = {"predicate": first, "calls": calls, "constraints": constraints, "context_facts": _context(caller)}
    return _member(_post(caller, "/evaluate_query", body), "results")


def query1(caller: Caller, predicate: str, pattern: tuple[tuple[str | None, str | None], ...]) -> list | Refused:
    fact = {"predicate": predicate, "args": [{"type": kind, "id": an_id} for kind, an_id in pattern]}
    found = _member(_post(caller, "/query", {"fact": fact, "context_facts": _context(caller)}), "results")
    if isinstance(found, Refused):
        return found
    assert {row["predicate"] for row in found} <= {predicate}
    return [[(arg["type"], arg["id"]) for arg in row["args"]] for row in found]


def explain(caller: Caller, predicate: str, row: Row) -> dict | Refused:
    """The proof of a goal, or its obstacles. On a busy machine there may be no time for all of it."""
    said = explained(caller, predicate, row)
    if isinstance(said, Refused):
        return said
    if GIVEN_UP in json.dumps(said):
        raise PastLimit(GIVEN_UP)
    return said["calls"][0]


def explained(caller: Caller, predicate: str, row: Row) -> dict | Refused:
    """The whole answer."""
    names = [f"v{index}" for index in range(len(row))]
    constraints = {name: {"type": value.type, "ids": [value.id]} for name, value in zip(names, row)}
    body = {"predicate": (predicate, names), "calls": [], "constraints": constraints}
    return _post(caller, "/explain", {**body, "context_facts": _context(caller)})


# ---- the wire ---------------------------------------------------------------------------------------------


def _post(caller: Caller, path: str, body: Any) -> Any:
    headers = {"Authorization": f"Bearer {caller.key}"}
    moment = {"as_of": caller.as_of, "policy_version": caller.policy_version}
    said_with = {name: value for name, value in moment.items() if value is not None}
    if path == "/bulk_actions":
        body = [body[0] | said_with, *body[1:]]
    elif isinstance(body, dict):
        body = body | said_with
    response = client.post(f"/api{path}", json.dumps(body), content_type="application/json", headers=headers)
    said = json.loads(response.content)
    if response.status_code == 400:
        for limit, words in LIMITS.items():
            if said["message"].startswith(words):
                raise PastLimit(limit)
    return said if response.status_code in (200, 202) else Refused(said["message"], response.status_code)


def _member(said: Any, name: str) -> Any:
    return said if isinstance(said, Refused) else said[name]


def _who(caller: Caller, actor: Value) -> dict[str, object]:
    return {"actor_type": actor.type, "actor_id": actor.id, "context_facts": _context(caller)}


def _context(caller: Caller) -> list[dict[str, object]]:
    return [_fact(fact) for fact in caller.context]


def _fact(fact: Fact) -> dict[str, object]:
    return {"predicate": fact[0], "args": [_value(value) for value in fact[1]]}


def _value(value: Value) -> dict[str, str]:
    return {"type": value.type, "id": value.id}
