"""Questions of every kind: what the oracle answers, and what an answer on the wire means.

Both are a set of rows of values, or `Refused`. A wildcard on the wire stands for all values of its type in the world,
the unmentioned one too, so that an answer and the oracle's can be compared as sets.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from policy.values import STRING, Value
from tests.reference import Model, Row, World, answers, is_sayable, matching


@dataclass(frozen=True)
class Refused:
    """A 400: the answer is all but some. Any other status is never right."""

    message: str = field(default="", compare=False)
    status: int = 400


Meaning = frozenset[Row] | Refused


@dataclass(frozen=True)
class Authorize:
    actor: Value
    action: str
    resource: Value


@dataclass(frozen=True)
class Actions:
    actor: Value
    resource: Value
    in_bulk: bool = False


@dataclass(frozen=True)
class List:
    actor: Value
    action: str
    resource_type: str


@dataclass(frozen=True)
class AuthorizeResources:
    actor: Value
    action: str
    resources: tuple[Value, ...]


@dataclass(frozen=True)
class AuthorizeEach:
    """Checks of anything, at once; some of them perhaps twice."""

    checks: tuple[tuple[Value, str, Value], ...]


@dataclass(frozen=True)
class Evaluate:
    calls: tuple[tuple[str, tuple[str, ...]], ...]  # predicate and variables; the first is the predicate asked
    constraints: tuple[tuple[str, str, tuple[str, ...] | None], ...]  # variable, exact type, ids

    @property
    def variables(self) -> list[str]:
        return list(dict.fromkeys(name for _, args in self.calls for name in args))


@dataclass(frozen=True)
class QueryFacts:
    """The first version of the query: one pattern of facts."""

    predicate: str
    pattern: tuple[tuple[str | None, str | None], ...]


@dataclass(frozen=True)
class Explain:
    """Why a goal holds or does not."""

    predicate: str
    row: Row


Ask = Authorize | Actions | List | AuthorizeResources | AuthorizeEach | Evaluate | QueryFacts | Explain


@dataclass(frozen=True)
class Question:
    ask: Ask
    with_context: bool


def values_in(ask: Ask) -> list[Value]:
    """What the question mentions, for the oracle's world."""
    match ask:
        case Authorize(actor, action, resource):
            return [actor, Value(STRING, action), resource]
        case Actions(actor, resource):
            return [actor, resource]
        case List(actor, action, _):
            return [actor, Value(STRING, action)]
        case AuthorizeResources(actor, action, resources):
            return [actor, Value(STRING, action), *resources]
        case AuthorizeEach(checks):
            return [value for row in _rows_of(checks) for value in row]
        case Evaluate(_, constraints):
            return [Value(type_name, an_id) for _, type_name, ids in constraints for an_id in ids or ()]
        case QueryFacts(_, pattern):
            return [Value(type_name, an_id) for type_name, an_id in pattern if an_id is not None]
        case Explain(_, row):
            return list(row)


def is_given(ask: Ask) -> bool:
    """Whether it leaves no value open, so that the answer is yes or no to each."""
    match ask:
        case Evaluate(_, constraints):
            return all(ids is not None for _, _, ids in constraints)
        case Actions() | List() | QueryFacts():
            return False
    return True


def _rows_of(checks: Sequence[tuple[Value, str, Value]]) -> list[Row]:
    return [(actor, Value(STRING, action), resource) for actor, action, resource in checks]


def predicates_in(ask: Ask) -> set[str]:
    match ask:
        case Evaluate(calls, _):
            return {predicate for predicate, _ in calls}
        case QueryFacts(predicate, _) | Explain(predicate, _):
            return {predicate}
    return {"allow"}


# ---- what the oracle says ---------------------------------------------------------------------------------


def expected(ask: Ask, model: Model, world: World) -> Meaning:
    rows = _expected_rows(ask, model, world)
    return frozenset(rows) if is_sayable(rows, world) else Refused()


def _expected_rows(ask: Ask, model: Model, world: World) -> set[Row]:
    allowed = model.get(("allow", 3), set())
    match ask:
        case Authorize(actor, action, resource):
            return {()} if (actor, Value(STRING, action), resource) in allowed else set()
        case Actions(actor, resource):
            return {(row[1],) for row in allowed if (row[0], row[2]) == (actor, resource) and row[1].type == STRING}
        case List(actor, action, type_name):
            said = (actor, Value(STRING, action))
            return {(row[2],) for row in allowed if row[:2] == said and row[2].type == type_name}
        case AuthorizeResources(actor, action, resources):
            return {(value,) for value in resources if (actor, Value(STRING, action), value) in allowed}
        case AuthorizeEach(checks):
            return {row for row in _rows_of(checks) if row in allowed}
        case Evaluate(calls, constraints):
            return answers(model, world, calls, {name: (kind, ids) for name, kind, ids in constraints})
        case QueryFacts(predicate, pattern):
            return matching(model, predicate, pattern)
        case Explain(predicate, row):
            return {()} if row in model.get((predicate, len(row)), ()) else set()


# ---- what an answer means -----------------------------------------------------------------------------------


def meaning(ask: Ask, said: Any, world: World) -> Meaning:
    """`said` as the adapter gives it: a bool, ids, values, rows of ids by variable, or rows of (type, id)."""
    if isinstance(said, Refused):
        return said
    match ask:
        case Authorize():
            return frozenset({()}) if said is True else frozenset()
        case Explain():
            return frozenset({()}) if said["allowed"] is True else frozenset()
        case Actions():
            return _covered([[(STRING, _unstarred(name))] for name in said], world)
        case List(_, _, type_name):
            return _covered([[(type_name, _unstarred(an_id))] for an_id in said], world)
        case AuthorizeResources(_, _, resources):
            kept = [value for value in resources if value in said]
            assert kept == said, "order and duplicates are those of the question"
            return frozenset((value,) for value in said)
        case AuthorizeEach(checks):
            assert len(said) == len(checks), "one answer to each"
            found = list(zip(_rows_of(checks), said))
            allowed = frozenset(row for row, is_allowed in found if is_allowed is True)
            assert all(is_allowed is (row in allowed) for row, is_allowed in found), "the same to the same"
            return allowed
        case Evaluate():
            kinds = {name: kind for name, kind, _ in ask.constraints}
            return _covered([[(kinds[name], row[name]) for name in ask.variables] for row in said], world)
        case QueryFacts():
            return _covered(said, world)


def _unstarred(an_id: str) -> str | None:
    return None if an_id == "*" else an_id


def _covered(rows: Sequence[Sequence[tuple[str | None, str | None]]], world: World) -> frozenset[Row]:
    listed = [tuple(map(tuple, row)) for row in rows]
    assert len(listed) == len(set(listed)), "no answer comes twice"
    return frozenset(found for row in listed for found in itertools.product(*(_values(cell, world) for cell in row)))


def _values(cell: tuple[str | None, str | None], world: World) -> tuple[Value, ...]:
    type_name, an_id = cell
    if an_id is not None:
        return (Value(type_name or "", an_id),)
    return world.everything if type_name is None else world.exactly(type_name)
