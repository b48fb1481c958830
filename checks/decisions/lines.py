"""Lines of the decision log, as they are read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from checks.decisions.log import Summary, is_summary, shown
from policy.errors import AuthzError
from policy.ground.clock import microseconds_of

_TEXTS = ("time", "request_id", "key", "endpoint")
_NUMBERS = ("environment", "microseconds")
_NUMBERS_OR_NULL = ("revision", "policy_version")
_MEMBERS = (*_TEXTS, *_NUMBERS, *_NUMBERS_OR_NULL, "question", "answer")


class BadLogLine(AuthzError):
    """A line of the file is no line of a decision log."""

    def __init__(self, number: int, reason: str):
        super().__init__(f"line {number}: {reason}")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A question that was answered, and how."""

    number: int  # of the line in its file
    time: str
    request_id: str
    environment: int
    key: str
    endpoint: str
    question: Any  # the body that was sent
    answer: Summary
    revision: int | None
    policy_version: int | None
    microseconds: int
    is_published_client: bool = False
    context_facts_left_out: int = 0

    @property
    def at(self) -> int:
        """Return when it was answered, in microseconds since 1970."""
        return microseconds_of(datetime.fromisoformat(self.time))

    def __str__(self) -> str:
        known = "" if self.revision is None else f", revision {self.revision}"
        return f"line {self.number}: {self.endpoint} at {self.time}{known}, {self.key}, {shown(self.answer)}"


def lines_of(file: Iterable[bytes]) -> Iterator[LogLine | BadLogLine]:
    """Yield each line that is not empty, or a `BadLogLine` that says what is wrong with it."""
    for number, text in enumerate(file, 1):
        if text.strip():
            yield line_of_text(text, number)


def line_of_text(text: bytes | str, number: int) -> LogLine | BadLogLine:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return BadLogLine(number, "it is not JSON")
    if not isinstance(found, dict):
        return BadLogLine(number, "it is not an object")
    wrong = next((name for name in (*_TEXTS, *_NUMBERS, *_NUMBERS_OR_NULL) if not _is_right(name, found)), "")
    if wrong or not isinstance(found.get("answer"), dict) or "question" not in found:
        return BadLogLine(
            number, f"it is no line of a decision log: `{wrong or 'answer or question'}` is missing or wrong"
        )
    line = LogLine(number, **{name: found[name] for name in LogLine.__slots__ if name in found and name != "number"})
    try:
        _ = line.at
    except (ValueError, TypeError):
        return BadLogLine(number, f"`{line.time[:40]}` is not a time with its zone")
    return line


def _is_right(name: str, found: dict[str, Any]) -> bool:
    value = found.get(name, ...)
    if name in _TEXTS:
        return isinstance(value, str)
    if name == "question":
        return isinstance(value, dict | list)
    if name == "answer":
        return isinstance(value, dict) and is_summary(value)
    return (value is None and name in _NUMBERS_OR_NULL) or (isinstance(value, int) and not isinstance(value, bool))
