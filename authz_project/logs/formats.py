"""Formats log lines, as plain text or as JSON. Nothing that somebody sends can forge a line, or break one."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import orjson

from authz_project.logs.current import current
from authz_project.logs.details import without_details
from policy.clock import text_of

FACTS = "facts"  # a record's further fields, given by `extra={FACTS: {…}}`
LEAST = 200  # characters that shortening leaves of a text at least

# Characters that end lines, move the cursor, or change the direction of writing.
_PLACES = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_UNPRINTABLE = {place: ascii(chr(place))[1:-1] for place in _PLACES}
_IN_TRACEBACKS = {place: text for place, text in _UNPRINTABLE.items() if place not in (0x09, 0x0A)}


def about_request() -> dict[str, Any]:
    """Return what is known of the request that this thread answers; nothing where it answers none."""
    if not current.request_id:
        return {}
    from_whom = current.caller
    named = {"environment": from_whom.environment, "key_id": from_whom.key_id} if from_whom is not None else {}
    return {"request_id": current.request_id, "endpoint": current.path, **named}


class Plain(logging.Formatter):
    """Time, level, logger and text on one line. A traceback follows, indented: none of it looks like a log line."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name} {message}", style="{")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(_UNPRINTABLE)

    def formatException(self, ei: Any) -> str:
        return _indented(without_details(super().formatException(ei)))

    def formatStack(self, stack_info: str) -> str:
        return _indented(stack_info)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.translate(_IN_TRACEBACKS).split("\n"))


class Json(logging.Formatter):
    """An object on one line: `time`, `level`, `logger`, `message`, the request's members, and the record's own."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": text_of(int(record.created * 1_000_000)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **about_request(),
            **getattr(record, FACTS, {}),
        }
        if record.exc_info:
            fields["traceback"] = without_details(self.formatException(record.exc_info))
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json_of(fields)


def command_line_to_json(text: str) -> str:
    """Return a command's message to people as a line of JSON, for where all output is JSON."""
    now = text_of(time.time_ns() // 1_000)
    return json_of({"time": now, "level": "INFO", "logger": "authz.serve", "message": text})


def json_of(fields: Mapping[str, Any]) -> str:
    """Return the object as one line of JSON, whatever its values are."""
    try:
        return orjson.dumps(fields, default=str).decode()
    except orjson.JSONEncodeError:  # a text with half of a surrogate pair
        whole = {name: _whole(value) for name, value in fields.items()}
        return orjson.dumps(whole, default=str).decode()


def _whole(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else ascii(value)


def shortened(line: str, most: int) -> str:
    """Return the line in at most `most` bytes. A plain line loses its middle; in JSON, the longest texts do."""
    if _size(line) <= most:
        return line
    if not line.startswith("{"):
        return _without_middle(line, max(LEAST, most // 4 - 10))
    fields = orjson.loads(line)
    while _size(line) > most:
        name, text = max(((name, text) for name, text in fields.items() if isinstance(text, str)), key=_length)
        if len(text) <= LEAST:
            return json_of(
                {name: fields[name] for name in ("time", "level", "logger")} | {"message": "too long a line"}
            )
        fields[name] = _without_middle(text, len(text) // 2)
        line = json_of(fields)
    return line


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))


def _length(member: tuple[str, str]) -> int:
    return len(member[1])


def _without_middle(text: str, most: int) -> str:
    start = most // 3
    return f"{text[:start]} … {text[start - most :]}"
