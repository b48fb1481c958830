"""What one parse notes on its way: the mistakes found so far, and how deep it is."""

import json
from dataclasses import dataclass, field
from typing import NoReturn

from policy.language.rejection import PolicyRejected, Problem
from policy.language.source import Source, Span
from policy.values import Value

MAX_PROBLEMS = 50  # nobody reads more, and hostile text must not buy a message of any length
MAX_DEPTH = 200  # later passes recurse over formulas
MAX_SHOWN = 40


@dataclass(slots=True)
class Notes:
    source: Source
    problems: list[Problem] = field(default_factory=list)
    depth: int = 0
    values: dict[str, Value] = field(default_factory=dict)  # literals seen before, by their text

    def refuse(self, span: Span, message: str, hint: str = "") -> None:
        """Note an error. A later one about the same place is most likely a consequence, and is left out."""
        if any(problem.span.start == span.start for problem in self.problems):
            return
        self.problems.append(Problem(message, span, hint))
        if len(self.problems) >= MAX_PROBLEMS:
            self.reject()

    def enter(self, span: Span) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.problems.append(Problem(f"nested more than {MAX_DEPTH} deep", span, "give inner parts names as rules"))
            self.reject()

    def leave(self) -> None:
        self.depth -= 1

    def reject(self) -> NoReturn:
        raise PolicyRejected(self.source, tuple(self.problems))


def shown(text: str) -> str:
    """User text for a message, in backticks."""
    return f"`{clipped(text)}`"


def clipped(text: str) -> str:
    """User text for a message: printable, and not too long."""
    short = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in short)


def spelled_out(text: str, kept: str = "") -> str:
    """User text for a line of a report: what cannot be seen and is not `kept` is written as in JSON."""
    return "".join(char if char.isprintable() or char in kept else json.dumps(char)[1:-1] for char in text)
