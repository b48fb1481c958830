"""What a model says, worked out in the plainest way: the other side of the comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    Itself,
    Model,
    ModelComparison,
    ModelCondition,
    ModelTest,
    Negation,
    Nothing,
    Thing,
    Tuple,
    Union,
    Unsure,
    Who,
)

ORDER: dict[str, Callable[[object, object], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


@dataclass
class World:
    model: Model
    tuples: list[Tuple]
    context: dict[str, object]

    def holds(self, who: Who, relation: str, thing: Thing, surely: bool = True, path: tuple = ()) -> bool:
        """Whether it does for sure; else whether it might."""
        here = (who, relation, thing, surely)
        type_ = next(each for each in self.model.types if each.name == thing.type)
        found = next((each for each in type_.relations if each.name == relation), None)
        if found is None or here in path:
            return False  # it does not follow from itself
        if (who.type, who.id, who.relation) == (thing.type, thing.id, relation):
            return True
        return self._of(found.expression, who, relation, thing, surely, (*path, here))

    def _of(self, part: Expression, who: Who, relation: str, thing: Thing, surely: bool, path: tuple) -> bool:
        match part:
            case Direct():
                return any(self._grants(each, who, surely, path) for each in self._tuples(thing, relation, surely))
            case Computed(other):
                return self.holds(who, other, thing, surely, path)
            case Arrow(tupleset, other, False):
                return any(
                    self.holds(who, other, Thing(each.subject.type, each.subject.id), surely, path)
                    for each in self._tuples(thing, tupleset, surely)
                )
            case Union(parts):
                return any(self._of(each, who, relation, thing, surely, path) for each in parts)
            case Intersection(parts):
                return all(self._of(each, who, relation, thing, surely, path) for each in parts)
            case Exclusion(base, subtract):
                kept = self._of(base, who, relation, thing, surely, path)
                return kept and not self._of(subtract, who, relation, thing, not surely, path)
            case Itself():
                return (who.type, who.id, who.relation) == (thing.type, thing.id, None)
            case Unsure(most):
                return not surely and self._of(most, who, relation, thing, False, path)
            case Nothing():
                return False
        raise NotImplementedError(part)

    def _tuples(self, thing: Thing, relation: str, surely: bool) -> list[Tuple]:
        return [
            each for each in self.tuples
            if (each.object, each.relation) == (thing, relation) and self._counts(each, surely)
        ]  # fmt: skip

    def _grants(self, given: Tuple, who: Who, surely: bool, path: tuple) -> bool:
        subject = given.subject
        if subject == who or (subject.is_everybody and subject.type == who.type and who.relation is None):
            return True
        return subject.relation is not None and self.holds(
            who, subject.relation, Thing(subject.type, subject.id), surely, path
        )

    def _counts(self, given: Tuple, surely: bool) -> bool:
        if given.condition is None:
            return True
        condition = next(each for each in self.model.conditions if each.name == given.condition)
        met = self._met(condition, {**self.context, **dict(given.values)})
        return met is True or (met is None and not surely)

    def _met(self, condition: ModelCondition, values: dict[str, object]) -> bool | None:
        if condition.needs_every_value and not all(each.name in values for each in condition.parameters):
            return None
        return tested(condition.test, values)


def tested(test: ModelTest, values: dict[str, object]) -> bool | None:
    """True, false, or None where a value is missing that decides it."""
    match test:
        case ModelComparison(operator, left, right):
            sides = [each.value if isinstance(each, Constant) else values.get(name_of(each)) for each in (left, right)]
            return None if None in sides else ORDER[operator](*sides)
        case IsTrue(name):
            return values.get(name)  # type: ignore[return-value]
        case Negation(inner):
            found = tested(inner, values)
            return None if found is None else not found
        case AllOf(parts) | AnyOf(parts):
            met = [tested(each, values) for each in parts]
            decides = isinstance(test, AnyOf)
            return decides if decides in met else None if None in met else not decides
    raise NotImplementedError(test)


def name_of(operand: object) -> str:
    assert isinstance(operand, GivenValue)
    return operand.parameter
