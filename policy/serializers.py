"""Shapes of bodies and query strings."""

from typing import Any

from rest_framework import serializers

MAX_FILENAME = 1000  # characters


class TextField(serializers.Field):
    """A string and nothing that could be made one."""

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


class PolicyBody(serializers.Serializer):
    """The text is the compiler's to judge; the name is shown in front of its problems, on one line."""

    default_error_messages = {"invalid": "the body must be an object"}

    src = TextField()
    filename = TextField(max_length=MAX_FILENAME, one_line=True, required=False, allow_null=True, default=None)


class PublishFlags(serializers.Serializer):
    force = serializers.BooleanField(default=False)
    show_suggestions = serializers.BooleanField(default=False)
    fail_fast = serializers.BooleanField(default=False)
