"""Shapes of bodies, flat. What is wrong with a field is told with the field's path."""

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

from django.conf import settings
from rest_framework import serializers

from checks.asking import query
from checks.asking.question import Asked
from checks.explain.bindings import ANY
from facts import wire
from facts.bundles import bundle_from_json
from facts.serializers import field_path
from facts.wire import Fact
from policy.errors import MalformedRequest, TooLarge
from policy.values import PRIMITIVES, STRING

SMALLEST = 10_000  # page

# ---- fields: without what the framework does for forms, which costs more than the answer ---------------------------


class DecodedField(serializers.Field):
    """A member of the body, as `decode` takes it; what is absent is null."""

    def __init__(self, decode):
        super().__init__()
        self.decode = decode

    def get_value(self, body):
        return body.get(self.field_name)

    def run_validation(self, raw=None):
        return self.decode(raw, self.path)

    @cached_property
    def path(self) -> str:
        return field_path(self)


class ReferenceField(DecodedField):
    """One value out of two members of the body, `<name>_type` and `<name>_id`."""

    def __init__(self, takes_any: bool = False):
        super().__init__(None)
        self.takes_any = takes_any

    def get_value(self, body):
        return body.get(f"{self.field_name}_type"), body.get(f"{self.field_name}_id")

    def run_validation(self, raw: Any = (None, None)) -> Asked:
        type_name = wire.name_from_json(raw[0], f"{self.path}_type")
        if self.takes_any and raw[1] == "*":
            return any_value(type_name, f"{self.path}_type")
        return Asked(type_name, (wire.id_from_json(type_name, raw[1], f"{self.path}_id"),))


def action_from_json(raw: object, path: str) -> Asked:
    return Asked(STRING, (wire.id_from_json(STRING, raw, path),))


def asked_action_from_json(raw: object, path: str) -> Asked:
    return any_value(STRING, path) if raw == "*" else action_from_json(raw, path)


def any_value(type_name: str, path: str) -> Asked:
    """A value that nothing mentions: what holds for it holds for all."""
    if type_name in PRIMITIVES and type_name != STRING:
        raise MalformedRequest(path, f"there is no answer about every {type_name}; name a value")
    return Asked(type_name, (ANY,))


def context_from_json(raw: object, path: str) -> Sequence[Fact]:
    limit = settings.MAX_CONTEXT_FACTS
    if limit and isinstance(raw, list) and len(raw) > limit:
        raise TooLarge(f"{len(raw)} context facts are more than {limit}, the limit of MAX_CONTEXT_FACTS")
    return () if raw is None else bundle_from_json(raw, path)


def expected_from_json(raw: object, path: str) -> bool:
    if not isinstance(raw, bool):
        raise MalformedRequest(path, "must be true or false")
    return raw


def size_from_json(raw: object, path: str) -> int:
    """The size of a page."""
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise MalformedRequest(path, f"must be an integer of at least {SMALLEST}")
    if raw < SMALLEST:
        raise MalformedRequest(path, f"must be at least {SMALLEST}")
    return raw


def any_json(raw: object, path: str) -> object:
    """Nothing is wrong before it is known which of page size and page token counts."""
    return raw


# ---- bodies --------------------------------------------------------------------------------------------------------


class ActionsQuery(serializers.Serializer):
    actor = ReferenceField()
    resource = ReferenceField()
    context_facts = DecodedField(context_from_json)


class AuthorizeQuery(ActionsQuery):
    action = DecodedField(action_from_json)


class ExplainQuery(serializers.Serializer):
    """Of one answer: what /authorize was asked, or one solution of /evaluate_query. `*` is any value."""

    actor = ReferenceField(takes_any=True)
    resource = ReferenceField(takes_any=True)
    action = DecodedField(asked_action_from_json)
    context_facts = DecodedField(context_from_json)


class ListQuery(serializers.Serializer):
    actor = ReferenceField()
    action = DecodedField(action_from_json)
    resource_type = DecodedField(wire.name_from_json)
    context_facts = DecodedField(context_from_json)
    page_size = DecodedField(any_json)
    page_token = DecodedField(any_json)


class AuthorizeResourcesQuery(serializers.Serializer):
    actor = ReferenceField()
    action = DecodedField(action_from_json)
    resources = DecodedField(wire.values_from_json)
    context_facts = DecodedField(context_from_json)


class EvaluateQuery(serializers.Serializer):
    predicate = DecodedField(query.call_from_json)
    calls = DecodedField(query.calls_from_json)
    constraints = DecodedField(query.constraints_from_json)
    context_facts = DecodedField(context_from_json)


class FactQuery(serializers.Serializer):
    fact = DecodedField(wire.pattern_from_json)
    context_facts = DecodedField(context_from_json)


class Expectation(serializers.Serializer):
    request_id = DecodedField(wire.name_from_json)
    expected = DecodedField(expected_from_json)


def decoded(kind: type[serializers.Serializer], raw: object, path: str = "") -> dict:
    """The body's members; `path` is where in the request the body stands."""
    if not isinstance(raw, dict):
        raise MalformedRequest(path, "must be a JSON object")
    if not path:
        return _at_the_top(kind).to_internal_value(raw)
    body = kind()
    body.bind(path, None)  # type: ignore[arg-type]  # no parent, as the framework itself has it
    return body.to_internal_value(raw)


@cache
def _at_the_top(kind: type[serializers.Serializer]) -> serializers.Serializer:
    """One for all requests: nothing of a request is kept in it, and making one takes longer than using it."""
    return kind()
