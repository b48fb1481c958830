"""Random models with tuples, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from authz_project.importers.ir import (
    AllOf,
    AnyOf,
    Arrow,
    Computed,
    Constant,
    Direct,
    Exclusion,
    Expression,
    GivenValue,
    Intersection,
    IsTrue,
    Model,
    ModelComparison,
    ModelCondition,
    ModelParameter,
    ModelRelation,
    ModelTest,
    Negation,
    Subject,
    Thing,
    Tuple,
    Type,
    Union,
    Who,
)

IDS = ("1", "2", "3")
NAMES = ("owner", "blocked", "can-view")
THINGS = ("group", "document")
PARAMETERS = (ModelParameter("hour", "int"), ModelParameter("limit", "int"), ModelParameter("trusted", "bool"))


@dataclass
class Case:
    model: Model
    tuples: list[Tuple]
    context: dict[str, object]


def case_of(seed: int) -> Case:
    chance = Random(seed)
    conditions = tuple(_condition(chance, name) for name in ("early", "late")) if chance.random() < 0.6 else ()
    model = Model(_types(chance, conditions), conditions)
    tuples = _tuples(chance, model)
    values = {"hour": chance.randrange(6), "limit": chance.randrange(6), "trusted": chance.random() < 0.5}
    context = {name: value for name, value in values.items() if chance.random() < 0.6}
    return Case(model, tuples, context)


def _condition(chance: Random, name: str) -> ModelCondition:
    def test(depth: int) -> ModelTest:
        kind = chance.randrange(6) if depth else chance.randrange(3)
        match kind:
            case 0:
                operator = chance.choice(["<", "<=", "==", "!=", ">", ">="])
                return ModelComparison(operator, GivenValue("hour"), GivenValue("limit"))
            case 1:
                return ModelComparison(chance.choice(["<", ">="]), GivenValue("hour"), Constant(chance.randrange(6)))
            case 2:
                return IsTrue("trusted")
            case 3:
                return Negation(test(depth - 1))
            case _:
                return (AllOf, AnyOf)[kind % 2]((test(depth - 1), test(depth - 1)))

    found = test(2)
    asked = tuple(each for each in PARAMETERS if f"'{each.name}'" in repr(found))
    return ModelCondition(name, asked, found, needs_every_value=chance.random() < 0.5)


def _types(chance: Random, conditions: tuple[ModelCondition, ...]) -> tuple[Type, ...]:
    named = [each.name for each in conditions]
    found = [Type("user"), Type("robot")]
    for name in THINGS:
        relations = [ModelRelation("parent", Direct(), _parents(chance, named))]
        for place, each in enumerate(NAMES):
            subjects = _subjects(chance, named) if chance.random() < 0.7 else ()
            relations.append(_relation(chance, each, subjects, NAMES[:place]))
        found.append(Type(name, tuple(relations)))
    return tuple(found)


def _parents(chance: Random, conditions: list[str]) -> tuple[Subject, ...]:
    types = chance.sample(THINGS, chance.randrange(1, 3))
    return tuple(Subject(each, condition=_maybe(chance, conditions)) for each in types)


def _subjects(chance: Random, conditions: list[str]) -> tuple[Subject, ...]:
    kinds = [Subject("user"), Subject("robot"), Subject("user", wildcard=True)]
    kinds += [Subject(each, chance.choice(NAMES)) for each in THINGS]
    chosen = chance.sample(kinds, chance.randrange(1, 4))
    return tuple(dict.fromkeys(Subject(e.type, e.relation, e.wildcard, _maybe(chance, conditions)) for e in chosen))


def _maybe(chance: Random, conditions: list[str]) -> str | None:
    return chance.choice(conditions) if conditions and chance.random() < 0.3 else None


def _relation(chance: Random, name: str, subjects: tuple[Subject, ...], earlier: tuple[str, ...]) -> ModelRelation:
    def part(depth: int) -> Expression:
        kind = chance.randrange(8) if depth else chance.randrange(4)
        if kind == 0 and subjects:
            return Direct()
        if kind <= 1:
            return Computed(chance.choice(NAMES))
        if kind <= 3:
            return Arrow("parent", chance.choice(NAMES))
        if kind <= 5:
            return Union((part(depth - 1), part(depth - 1)))
        if kind == 6 or not earlier:
            return Intersection((part(depth - 1), part(depth - 1)))
        return Exclusion(part(depth - 1), Computed(chance.choice(earlier)))

    expression = part(2)
    if subjects and "Direct()" not in repr(expression).replace("place", ""):
        expression = Union((Direct(), expression))
    return ModelRelation(name, expression, subjects if "Direct" in repr(expression) else (), not subjects)


def _tuples(chance: Random, model: Model) -> list[Tuple]:
    found = []
    for type_ in model.types:
        for relation in type_.relations:
            for _ in range(chance.randrange(4) if relation.subjects else 0):
                subject = chance.choice(relation.subjects)
                who = Who(subject.type, "*" if subject.wildcard else chance.choice(IDS), subject.relation)
                found.append(
                    Tuple(
                        Thing(type_.name, chance.choice(IDS)),
                        relation.name,
                        who,
                        subject.condition,
                        _values(chance, model, subject.condition),
                    )
                )
    # Each once, whatever its condition: one that is there twice and says two things is refused.
    return list({(each.object, each.relation, each.subject): each for each in found}.values())


def _values(chance: Random, model: Model, condition: str | None) -> tuple[tuple[str, object], ...]:
    if condition is None:
        return ()
    asked = next(each for each in model.conditions if each.name == condition).parameters
    values = {"hour": chance.randrange(6), "limit": chance.randrange(6), "trusted": chance.random() < 0.5}
    return tuple((each.name, values[each.name]) for each in asked if chance.random() < 0.4)
