"""What an expression is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from authz_project.importers.model import (
    Direct,
    Exclusion,
    Expression,
    Intersection,
    Model,
    Nothing,
    Relation,
    Type,
    Union,
    Unsure,
)


def leaves(expression: Expression, negated: bool = False) -> Iterator[tuple[Expression, bool]]:
    """Yield each leaf of an expression, and whether it lies below the subtracted side of an exclusion."""
    match expression:
        case Union(parts) | Intersection(parts):
            for part in parts:
                yield from leaves(part, negated)
        case Exclusion(base, subtract):
            yield from leaves(base, negated)
            yield from leaves(subtract, True)
        case Unsure(most):
            yield from leaves(most, negated)
        case _:
            yield expression, negated


def alternatives(expression: Expression) -> tuple[Expression, ...]:
    """Return parts of which one is enough."""
    if isinstance(expression, Union):
        return tuple(each for part in expression.parts for each in alternatives(part))
    return () if isinstance(expression, Nothing) else (expression,)


def changed(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return the expression with each part changed, the innermost first."""
    match expression:
        case Union(parts):
            return change(Union(tuple(changed(part, change) for part in parts)))
        case Intersection(parts):
            return change(Intersection(tuple(changed(part, change) for part in parts)))
        case Exclusion(base, subtract):
            return change(Exclusion(changed(base, change), changed(subtract, change)))
        case Unsure(most, place):
            return change(Unsure(changed(most, change), place))
        case _:
            return change(expression)


def is_direct(expression: Expression) -> bool:
    return isinstance(expression, Direct)


def relations_of(model: Model) -> Iterator[tuple[Type, Relation]]:
    for type_ in model.types:
        for relation in type_.relations:
            yield type_, relation
