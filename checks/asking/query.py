"""Makes questions of calls: of `allow`, of any one predicate, and the query of version 2, which is read from JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from checks.asking.question import Asked, Question, by_ids
from checks.engine.answers import Row
from facts import wire
from facts.wire import Fact
from policy.errors import MalformedRequest
from policy.values import ABSTRACT

NamedCall = tuple[str, tuple[str, ...]]  # a predicate and the names of its variables
TypedId = tuple[str, str | None]  # None is every id of the type
Check = tuple[Asked, Asked, Asked]  # an actor, an action, a resource
MAX_CALLS = 50
MAX_VARIABLES = 20  # of one call


def allow(
    actor: Asked, action: Asked, resource: Asked, outs: tuple[str, ...] = (), context: Sequence[Fact] = ()
) -> Question:
    """Return the question whether `actor` may do `action` on `resource`; `outs` names those whose values are wanted."""
    variables = {"actor": actor, "action": action, "resource": resource}
    return Question((("allow", ("actor", "action", "resource")),), variables, outs, context)


def question_about(
    predicate: str, asked: Sequence[Asked], outs: Iterable[int] = (), context: Sequence[Fact] = ()
) -> Question:
    """Return the question of one call, with variables `argument0`, …; `outs` are the places whose values are wanted."""
    names = tuple([f"argument{place}" for place in range(len(asked))])
    return Question(((predicate, names),), dict(zip(names, asked)), tuple([names[place] for place in outs]), context)


# ---- decoding ------------------------------------------------------------------------------------------------


def call_from_json(raw: object, path: str) -> NamedCall:
    if not isinstance(raw, list) or len(raw) != 2:
        raise MalformedRequest(path, "must be an array of two elements, a predicate and its variables")
    predicate, variables = raw
    if not isinstance(variables, list):
        raise MalformedRequest(f"{path}[1]", "must be an array of variables")
    if len(variables) > MAX_VARIABLES:
        raise MalformedRequest(f"{path}[1]", f"must have at most {MAX_VARIABLES} elements")
    names = [wire.new_name_from_json(name, f"{path}[1][{index}]") for index, name in enumerate(variables)]
    return wire.name_from_json(predicate, f"{path}[0]"), tuple(names)


def calls_from_json(raw: object, path: str) -> tuple[NamedCall, ...]:
    if not isinstance(raw, list):
        raise MalformedRequest(path, "must be an array of calls")
    if len(raw) > MAX_CALLS:
        raise MalformedRequest(path, f"must have at most {MAX_CALLS} elements")
    return tuple([call_from_json(call, f"{path}[{index}]") for index, call in enumerate(raw)])


def constraints_from_json(raw: object, path: str) -> dict[str, object]:
    """Return the object as sent: constraints of variables in the query are decoded later, all others are ignored."""
    if not isinstance(raw, dict):
        raise MalformedRequest(path, "must be an object from variables to types and ids")
    return raw


def asked_from_json(constraints: dict[str, object], name: str) -> Asked:
    path = f"constraints.{name}"
    if name not in constraints:
        raise MalformedRequest("constraints", f"the variable `{name}` has none, so it has no type")
    raw = constraints[name]
    if not isinstance(raw, dict):
        raise MalformedRequest(path, 'must be an object with "type" and "ids"')
    type_name = wire.name_from_json(raw.get("type"), f"{path}.type")
    if type_name in ABSTRACT:
        raise MalformedRequest(f"{path}.type", f"`{type_name}` is not the type of any value, name a declared one")
    ids = raw.get("ids")
    if ids is None:
        return Asked(type_name)
    if not isinstance(ids, list):
        raise MalformedRequest(f"{path}.ids", "must be an array of ids or null")
    texts = [wire.id_from_json(type_name, text, f"{path}.ids[{index}]") for index, text in enumerate(ids)]
    return Asked(type_name, tuple(dict.fromkeys(texts)))


# ---- the question and its answer -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Query:
    """A question whose variables are in order of appearance; one that has one given id is no answer column.

    Variables are renamed by their places, `?0`, `?1`, …: clients make up new names for each query, and questions share
    a statement only if their variables have the same names.
    """

    question: Question

    @classmethod
    def of(cls, calls: tuple[NamedCall, ...], constraints: dict[str, object], context: tuple[Fact, ...]) -> Query:
        names = dict.fromkeys(name for _, variables in calls for name in variables)
        ours = {name: f"?{place}" for place, name in enumerate(names)}
        variables = {ours[name]: asked_from_json(constraints, name) for name in names}
        outs = tuple([name for name, asked in variables.items() if asked.ids is None or len(asked.ids) != 1])
        placed = tuple([(predicate, tuple([ours[name] for name in args])) for predicate, args in calls])
        return cls(Question(placed, variables, outs, context, dict(zip(variables, names))))

    def asking_for(self, names: Iterable[str]) -> Question:
        """Return the question with other answer columns: these variables, by the names that the caller gave them."""
        ours = {name: our for our, name in self.question.names.items()}
        for name in names:
            if name not in ours:
                raise MalformedRequest("mode", f"the query has no variable `{name}`")
        return self.question._replace(outs=tuple([ours[name] for name in names]))

    def results(self, rows: Iterable[Row]) -> list[dict[str, str | None]]:
        """Return an object for each solution: an id for each variable, in order of appearance; null is every value."""
        outs, variables = self.question.outs, self.question.variables
        fixed = {name: asked.one for name, asked in variables.items() if name not in outs}
        solutions = ({**fixed, **dict(zip(outs, row))} for row in rows)
        results = [{self.question.called(name): solution[name] for name in variables} for solution in solutions]
        return sorted(results, key=lambda result: by_ids(tuple(result.values())))
