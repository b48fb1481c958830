"""Shapes of bodies, flat: facts are one field each, because nested serializers cost twenty times more."""

from collections.abc import Callable

from rest_framework import serializers

from facts import wire
from facts.bundles import bundle_from_json


class _WireField(serializers.Field):
    decode: Callable[[object, str], object]  # of the class: a static method

    def to_internal_value(self, raw):
        return type(self).decode(raw, field_path(self))

    def to_representation(self, value):
        return value


class FactsField(_WireField):
    """An array of facts; null is the same as absent."""

    decode: Callable[[object, str], object] = staticmethod(bundle_from_json)

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
