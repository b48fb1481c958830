"""Log formatting: whole lines, in one format, without secrets."""

import logging
import math
import os
import re
import select
import stat
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import orjson

from policy.core.clock import text_of
from policy.core.spans import current

# ---- redaction ----------------------------------------------------------------------------------------------------
# Removes row values from errors: PostgreSQL includes them in `DETAIL` and in the `CONTEXT` of a COPY.

_NEXT = r"(?=\n\n(?:The above exception|During handling of)|\Z)"  # the next error in a chained traceback, or the end
_DETAILS = re.compile(rf"\n[^\W\d_]+:  .*?{_NEXT}", re.DOTALL)  # with any label, as the server may use any language


def without_details(text: str) -> str:
    """Return an error message or traceback with each error cut off before its first label, such as `DETAIL:`."""
    return _DETAILS.sub("", text)


# ---- formatters ---------------------------------------------------------------------------------------------------
# Format records as plain text or JSON. No input can forge a log line or break one up (log injection).

FACTS = "facts"  # extra fields of a record, passed as `extra={FACTS: {…}}`
LEAST = 200  # characters that truncation leaves of a text at least

# Control characters: line ends, cursor movement, and changes of the text direction.
_PLACES = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_UNPRINTABLE = {place: ascii(chr(place))[1:-1] for place in _PLACES}
_IN_TRACEBACKS = {place: text for place, text in _UNPRINTABLE.items() if place not in (0x09, 0x0A)}


def about_request() -> dict[str, Any]:
    """Return fields about the request that this thread is processing; empty if there is none."""
    if not current.request_id:
        return {}
    from_whom = current.caller
    named = {"environment": from_whom.environment, "key_id": from_whom.key_id} if from_whom is not None else {}
    return {"request_id": current.request_id, "endpoint": current.path, **named}


class Plain(logging.Formatter):
    """Time, level, logger and message on one line. A traceback follows, indented so as not to look like log lines."""

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
    """A JSON object on one line: `time`, `level`, `logger`, `message`, fields of the request, and of the record."""

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
    """Return a command's message as a line of JSON, for when all output is JSON."""
    now = text_of(time.time_ns() // 1_000)
    return json_of({"time": now, "level": "INFO", "logger": "authz.serve", "message": text})


def json_of(fields: Mapping[str, Any]) -> str:
    """Return the object as one line of JSON, whatever its values."""
    try:
        return orjson.dumps(fields, default=str).decode()
    except orjson.JSONEncodeError:  # a text with a lone surrogate
        whole = {name: _whole(value) for name, value in fields.items()}
        return orjson.dumps(whole, default=str).decode()


def _whole(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else ascii(value)


def shortened(line: str, most: int) -> str:
    """Truncate a line to `most` bytes. A plain line loses its middle; in JSON, the longest texts do."""
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


# ---- writing whole lines, so that those of several threads and processes do not interleave ------------------------
# Each line is one write. On a pipe, only writes of up to PIPE_BUF bytes are atomic, so longer lines lose their middle.

STANDARD_ERROR = 2
MOST_IN_FILE = 1 << 16  # bytes
LONGEST_BRIEF = 300  # characters of a message that strangers can trigger


@cache
def most_at_once() -> int:
    """Return how many bytes can be written to standard error atomically."""
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(STANDARD_ERROR).st_mode)
    except OSError:
        return MOST_IN_FILE
    return select.PIPE_BUF if is_pipe else MOST_IN_FILE


def write(text: bytes) -> None:
    """Write whole lines. Raise `OSError` on failure."""
    left = memoryview(text)
    while left:
        left = left[os.write(STANDARD_ERROR, left) :]


class OncePerSecond:
    """Rate limiter for log lines: allows one per second of each kind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[object, float] = {}
        self._left_out: dict[object, int] = {}

    def left_out_before(self, kind: object) -> int | None:
        """Return how many lines were dropped since the last one that was written; None if this one is to be dropped."""
        with self._lock:
            now = time.monotonic()
            if now - self._last.get(kind, -math.inf) < 1.0:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return None
            self._last[kind] = now
            return self._left_out.pop(kind, 0)


def more(left_out: int) -> str:
    return f" (and {left_out} more)" if left_out else ""


class UntrustedLogFilter(logging.Filter):
    """Limits what strangers can write to the log: one line without a traceback, once a second per logger.

    There are few loggers: Django names one after each kind of rejection, such as `django.security.DisallowedHost`.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._once = OncePerSecond()

    def filter(self, record: logging.LogRecord) -> bool:
        left_out = self._once.left_out_before(record.name)
        if left_out is None:
            return False
        text = " ".join(record.getMessage().split())
        record.msg, record.args = f"{text[:LONGEST_BRIEF]}{more(left_out)}", ()
        record.exc_info = record.exc_text = record.stack_info = None
        return True


class LineHandler(logging.Handler):
    """Writes records to standard error. Records that cannot be written are lost: there is nowhere to report it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{shortened(self.format(record), most_at_once() - 1)}\n".encode("utf-8", "backslashreplace")
            with suppress(OSError):
                write(line)
        except Exception:
            self.handleError(record)
