"""The text of a policy, positions in it, and errors in it."""

from __future__ import annotations

import gc
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

from policy.errors import AuthzError

# ---- The text of a policy, and positions in it --------------------------------------------------------------------
# Nodes carry a `Span` of offsets; lines, columns and snippets are computed only for display.


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int

    def to(self, other: Span) -> Span:
        return Span(self.start, max(self.end, other.end))


NOWHERE = Span(0, 0)
MAX_SHOWN = 160  # characters of a line in a snippet


@dataclass(frozen=True)
class Source:
    text: str
    filename: str = field(default="")

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset, both starting at 1."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_start(self, line: int) -> int:
        """Return the offset at which a line starts; the first line is 1."""
        return self._line_starts[line - 1]

    def line_text(self, line: int) -> str:
        start = self._line_starts[line - 1]
        end = self._line_starts[line] - 1 if line < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    def snippet(self, span: Span) -> str:
        """Return the line where the span starts, with carets under the part of the span on that line."""
        line, column = self.position(span.start)
        text, before = _clipped(self.line_text(line), column - 1)
        width = max(1, min(span.end - span.start, len(text) - before))
        return f"  {text}\n  {' ' * before}{'^' * width}"


def _clipped(text: str, place: int) -> tuple[str, int]:
    """Return up to MAX_SHOWN characters of a line around `place`, with `…` at a cut, and the new index of `place`."""
    start = 0 if len(text) <= MAX_SHOWN else max(0, min(place - MAX_SHOWN // 3, len(text) - MAX_SHOWN))
    shown = "".join(char if char.isprintable() else " " for char in text[start : start + MAX_SHOWN])
    left, right = "…" if start else "", "…" if start + MAX_SHOWN < len(text) else ""
    return f"{left}{shown}{right}", place - start + len(left)


# ---- Errors in the text of a policy ------------------------------------------------------------------------------- A
# `Problem` is one error, as data; passes collect them, and `PolicyRejected` raises them together.


@dataclass(frozen=True, slots=True)
class Problem:
    message: str
    span: Span
    hint: str = ""
    severity: str = "error"  # or "warning"

    def describe(self, source: Source) -> str:
        """Return `file:line:column: message (hint)`, then the source line with carets under the span."""
        advice = f" ({self.hint})" if self.hint else ""
        line, column = source.position(self.span.start)
        place = f"{source.filename or 'policy'}:{line}:{column}"
        return f"{place}: {self.message}{advice}\n{source.snippet(self.span)}"


class PolicyRejected(AuthzError):
    """Raised for a text that is not a valid policy; `problems` has all errors found, in text order."""

    version: int | None = None  # the published version with this text, if `of_version` set one

    def __init__(self, source: Source, problems: tuple[Problem, ...]):
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.span.start, problem.message)))
        self.descriptions = tuple(problem.describe(source) for problem in self.problems)
        super().__init__("\n".join(self.descriptions))

    def of_version(self, number: int) -> PolicyRejected:
        """Return this error for published version `number`. Its `body` lists no problems: the request is valid."""
        found = PolicyRejected(self.source, self.problems)
        found.version = number
        found.message = f"policy version {number} no longer compiles:\n{self.message}"
        return found

    @property
    def body(self) -> dict[str, object]:
        if self.version is not None:
            return super().body
        errors = [{"error_type": "ValidationFailed", "message": text} for text in self.descriptions]
        return {"error_type": "Validation", "message": self.message, "errors": errors}


# ---- Read large inputs with the cyclic garbage collector disabled -------------------------------------------------

_lock = Lock()
_inside = 0  # number of threads inside: the first one disables the collector, the last one enables it again
_was_enabled = True


@contextmanager
def without_collections() -> Iterator[None]:
    """Disable the cyclic garbage collector inside the `with` block, for all threads; then restore its state.

    Parsing a large text creates a million objects without cycles, and keeps nearly all of them. Collections would find
    nothing and take a third of the time.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside, _was_enabled
    with _lock:
        if not _inside:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside += 1


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if not _inside and _was_enabled:
            gc.enable()
