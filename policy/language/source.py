"""The text of a policy, positions in it, and errors in it."""

from __future__ import annotations

import gc
import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import NoReturn

from policy.errors import AuthzError
from policy.values import Value

# ---- The text of a policy, and positions in it --------------------------------------------------------------------
# Nodes carry a `Span` of offsets; lines, columns and snippets are computed only for display.


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int

    def to(self, other: Span) -> Span:
        return Span(self.start, max(self.end, other.end))


NOWHERE = Span(0, 0)
MAX_SNIPPET = 160  # characters of a line


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

    def on_one_line(self, span: Span) -> str:
        return " ".join(self.text[span.start : span.end].split())

    def snippet(self, span: Span) -> str:
        """Return the line where the span starts, with carets under the part of the span on that line."""
        line, column = self.position(span.start)
        text, before = _clipped(self.line_text(line), column - 1)
        width = max(1, min(span.end - span.start, len(text) - before))
        return f"  {text}\n  {' ' * before}{'^' * width}"


def _clipped(text: str, place: int) -> tuple[str, int]:
    """Return up to MAX_SNIPPET characters of a line around `place`, with `…` at a cut, and the new index of `place`."""
    start = 0 if len(text) <= MAX_SNIPPET else max(0, min(place - MAX_SNIPPET // 3, len(text) - MAX_SNIPPET))
    shown = "".join(char if char.isprintable() else " " for char in text[start : start + MAX_SNIPPET])
    left, right = "…" if start else "", "…" if start + MAX_SNIPPET < len(text) else ""
    return f"{left}{shown}{right}", place - start + len(left)


# ---- Errors in the text of a policy -------------------------------------------------------------------------------
# A `Problem` is one error, as data; passes collect them, and `PolicyRejected` raises them together.


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


# ---- The state of a parse: the errors found so far, the depth of nesting, and the string literals seen --------------

MAX_PROBLEMS = 50  # no one reads more, and a hostile text must not cause an endless message
MAX_DEPTH = 200  # bounds the recursion of later passes over formulas
MAX_SHOWN = 40  # characters of user text in a message


@dataclass(slots=True)
class Notes:
    source: Source
    problems: list[Problem] = field(default_factory=list)
    depth: int = 0
    values: dict[str, Value] = field(default_factory=dict)  # string literals seen before, by their source text

    def refuse(self, span: Span, message: str, hint: str = "") -> None:
        """Record an error, unless there is one at the same start: the later one is most likely its consequence.

        Raise `PolicyRejected` once there are MAX_PROBLEMS.
        """
        if any(problem.span.start == span.start for problem in self.problems):
            return
        self.problems.append(Problem(message, span, hint))
        if len(self.problems) >= MAX_PROBLEMS:
            self.reject()

    def enter(self, span: Span) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.problems.append(Problem(f"nested more than {MAX_DEPTH} levels deep", span, "use separate rules"))
            self.reject()

    def leave(self) -> None:
        self.depth -= 1

    def reject(self) -> NoReturn:
        raise PolicyRejected(self.source, tuple(self.problems))


def shown(text: str) -> str:
    """Clip user text for a message, and put it in backticks."""
    return f"`{clipped(text)}`"


def clipped(text: str) -> str:
    """Clip user text for a message to MAX_SHOWN characters, and then escape unprintable ones."""
    short = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in short)


def spelled_out(text: str, kept: str = "") -> str:
    """Escape user text for a line of a report: unprintable characters that are not in `kept` are escaped as in JSON."""
    return "".join(char if char.isprintable() or char in kept else json.dumps(char)[1:-1] for char in text)


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
    global _inside, _was_enabled
    with _lock:
        if not _inside:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _was_enabled:
                gc.enable()
