"""The part of a model that one file has, in whichever notation."""

from __future__ import annotations

from dataclasses import dataclass

from authz_project.importers.cel import NotAnExpression, parsed, test_of
from authz_project.importers.model import Condition, Parameter, Place, Type
from authz_project.importers.report import wrong

_SCHEMAS = ("1.1", "1.2")


@dataclass(frozen=True, slots=True)
class ModelPart:
    """The part of a model that one file has; `extensions` add relations to types of others."""

    types: tuple[Type, ...]
    extensions: tuple[Type, ...]
    conditions: tuple[Condition, ...]
    comment: tuple[str, ...]


def check_schema(version: object, place: Place) -> None:
    """Refuse a version of the language that is not known here."""
    if version not in _SCHEMAS:
        raise wrong(place, f"schema {version} is not known; {' and '.join(_SCHEMAS)} are")


def condition_of(
    name: str, parameters: tuple[Parameter, ...], body: str, at: Place, comment: tuple[str, ...], place: Place
) -> Condition:
    """Return the condition that an expression says, which begins `at` a place."""

    def place_of(offset: int) -> Place:
        before = body[:offset]
        lines = before.count("\n")
        column = offset - before.rfind("\n") if lines else at.column + offset
        return Place(at.file, at.line + lines, column)

    declared = ", ".join(f"{each.name}: {each.type}" for each in parameters)
    written = " ".join(line.strip() for line in body.split("\n") if line.strip())
    text = f"condition {name}({declared}) {{ {written} }}"
    try:
        test = test_of(parsed(body), body, parameters, place_of)
        return Condition(name, parameters, test, text, comment, place, needs_every_value=True)
    except NotAnExpression as reason:
        raise wrong(place_of(reason.at), f"condition {name}: {reason.message}") from None
