"""Serializers of bodies and query strings, which define both their decoding and the OpenAPI document.

A serializer's docstring and its fields' help texts appear in the OpenAPI document, for callers.
"""

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, NamedTuple

from rest_framework import serializers

from policy.endpoint import Schema, nullable
from policy.errors import MalformedRequest
from policy.publishing import MAX_NOTE

MAX_FILENAME = 1000  # characters


class JsonType(NamedTuple):
    """A type of JSON values: `decode(raw, path)` converts the JSON at a path, `schema` describes the JSON."""

    decode: Callable[[Any, str], Any]
    schema: Schema


class DecodedField(serializers.Field):
    """A member of a body. An optional member that is missing or null gets the value `absent`.

    It skips the framework's processing of forms, which takes longer than answering a query.
    """

    def __init__(self, kind: JsonType, optional: bool = False, absent: object = None, help_text: str = ""):
        super().__init__(required=not optional, help_text=help_text)
        self.decode = kind.decode
        self.absent = absent
        self.schema = nullable(kind.schema) if optional else kind.schema

    def get_value(self, body):
        return body.get(self.field_name)

    def run_validation(self, raw=None):
        return self.absent if raw is None and not self.required else self.decode(raw, self.path)

    def reader(self) -> Callable[[dict], Any]:
        """Return a function that combines `get_value` and `run_validation` in one call."""
        get, decode, path, absent = self.get_value, self.decode, self.path, self.absent
        if self.required:
            return lambda body: decode(get(body), path)

        def read(body: dict) -> Any:
            raw = get(body)
            return absent if raw is None else decode(raw, path)

        return read

    @cached_property
    def path(self) -> str:
        """Return the member's position in the request: names joined by dots."""
        names: list[str] = []
        field: serializers.BaseSerializer | serializers.Field | None = self
        while field is not None:
            names.insert(0, field.field_name or "")
            field = field.parent
        return ".".join(filter(None, names))

    @property
    def members(self) -> dict[str, Schema]:
        """Return the schemas of the body's members that the field reads, by name: subclasses may read several."""
        return {str(self.field_name): self.schema}


def decoded(kind: type[serializers.Serializer], raw: object, path: str = "") -> dict:
    """Return the decoded members of a body; `path` is the body's position in the request."""
    if not isinstance(raw, dict):
        raise MalformedRequest(path, f"{'' if path else 'the request body '}must be a JSON object")
    try:
        return {name: read(raw) for name, read in _readers(kind)}
    except MalformedRequest as fault:
        if not path:
            raise
        raise MalformedRequest(f"{path}.{fault.path}", fault.reason) from None


@cache
def _readers(kind: type[serializers.Serializer]) -> tuple[tuple[str, Callable[[dict], Any]], ...]:
    """Return one function for each of the serializer's fields, which reads it from a body.

    All requests share the fields: creating them takes longer than using them, and they keep no state of a request.
    """
    return tuple((name, _reader(field)) for name, field in kind().fields.items())


def _reader(field: serializers.Field) -> Callable[[dict], Any]:
    if isinstance(field, DecodedField):
        return field.reader()
    return lambda body: field.run_validation(field.get_value(body))


# ---- the policy ------------------------------------------------------------------------------------------------


class TextField(serializers.Field):
    """A string. Unlike the framework's field, it does not convert numbers and other values to strings."""

    default_error_messages = {
        "type": "must be a string",
        "length": "must not be longer than {limit} characters",
        "unfit": "must not contain control characters",
    }

    def __init__(self, max_length: int | None = None, one_line: bool = False, **options: Any):
        super().__init__(**options)
        self.max_length = max_length
        self.one_line = one_line

    def to_internal_value(self, raw):
        if not isinstance(raw, str):
            self.fail("type")
        if self.max_length is not None and len(raw) > self.max_length:
            self.fail("length", limit=self.max_length)
        if self.one_line and not raw.isprintable():
            self.fail("unfit")
        return raw

    def to_representation(self, value):
        return value

    @property
    def schema(self) -> Schema:
        length = {} if self.max_length is None else {"maxLength": self.max_length}
        text = {"type": "string"} | length | ({"pattern": "^[ -~]*$"} if self.one_line else {})
        return nullable(text) if self.allow_null else text


class PolicyBody(serializers.Serializer):
    """A text in Polar."""

    default_error_messages = {"invalid": "the request body must be an object"}

    src = TextField()
    filename = TextField(
        max_length=MAX_FILENAME,
        one_line=True,
        required=False,
        allow_null=True,
        default=None,
        help_text="A file name that precedes the problems in error messages: one line of printable characters.",
    )
    note = TextField(
        max_length=MAX_NOTE,
        one_line=True,
        required=False,
        allow_null=True,
        default=None,
        help_text="What changes and why: one line, stored with the policy version.",
    )


class PublishFlags(serializers.Serializer):
    force = serializers.BooleanField(default=False, help_text="Publish even if tests fail.")
    fail_fast = serializers.BooleanField(default=False, help_text="Stop at the first failed test.")
    show_suggestions = serializers.BooleanField(
        default=False, help_text="Include compiler warnings in the response message."
    )
