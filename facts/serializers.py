"""Shapes of bodies, flat: facts are one field each, because nested serializers cost twenty times more.

And the pattern in the query string of GET /facts: `predicate`, `args.0.type`, `args.0.id`, `args.1.type` …
"""

import re
from collections.abc import Callable, Mapping

from rest_framework import serializers

from facts import wire
from facts.batches import batch_from_json
from facts.wire import Argument
from policy.errors import MalformedRequest
from policy.values import canonical_id

_ARGUMENT = re.compile(r"args\.([0-9]{1,4})\.(type|id)", re.ASCII)


class _WireField(serializers.Field):
    decode: Callable[[object, str], object]  # of the class: a static method

    def to_internal_value(self, raw):
        return type(self).decode(raw, field_path(self))

    def to_representation(self, value):
        return value


class FactsField(_WireField):
    """An array of facts; null is the same as absent."""

    decode: Callable[[object, str], object] = staticmethod(batch_from_json)

    def __init__(self, **options):
        super().__init__(**{"default": (), **options})

    def validate_empty_values(self, raw):
        return super().validate_empty_values(serializers.empty if raw is None else raw)


class PatternsField(FactsField):
    decode = staticmethod(wire.patterns_from_json)


class ValuesField(_WireField):
    """A required array of values."""

    decode = staticmethod(wire.values_from_json)


def field_path(field: serializers.Field) -> str:
    """Where in the body the field's value stands."""
    names = []
    while field is not None:
        names.append(field.field_name)
        field = field.parent
    return ".".join(name for name in reversed(names) if name)


class Bulk(serializers.Serializer):
    delete = PatternsField()
    tell = FactsField()


# ---- query strings ---------------------------------------------------------------------------------------------


def pattern_from_query(query: Mapping[str, str]) -> tuple[str | None, tuple[Argument, ...]]:
    """The predicate, None for all, and what is known of the first arguments."""
    given: dict[tuple[int, str], str] = {}
    for name, text in query.items():
        found = _ARGUMENT.fullmatch(name)
        if found:
            _check(text, name)
            given[int(found[1]), found[2]] = text
    predicate = query.get("predicate") or None
    _check(predicate or "", "predicate")
    length = 1 + max((position for position, _ in given), default=-1)
    return predicate, tuple(_argument(given, position) for position in range(length))


def _argument(given: dict[tuple[int, str], str], position: int) -> Argument:
    type_name, id_text = given.get((position, "type")), given.get((position, "id"))
    if type_name is None or id_text is None:
        return Argument(type_name, id_text)
    try:
        return Argument(type_name, canonical_id(type_name, id_text))
    except ValueError as reason:
        raise MalformedRequest(f"args.{position}.id", str(reason)) from None


def _check(text: str, name: str) -> None:
    if "\0" in text:
        raise MalformedRequest(name, "must not contain NUL characters")
