"""The text of a policy, and places in it.

Nodes carry a `Span` of offsets; lines, columns and snippets are worked out only when shown.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int

    def to(self, other: "Span") -> "Span":
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
        """Return the line and the column of an offset, both counted from 1."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_start(self, line: int) -> int:
        """Return the offset at which a line starts; lines are counted from 1."""
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
