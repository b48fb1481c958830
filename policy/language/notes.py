"""The state of one parse: the mistakes found so far, the depth of nesting, and the string literals seen."""

import json
from dataclasses import dataclass, field
from typing import NoReturn

from policy.language.rejection import PolicyRejected, Problem
from policy.language.source import Source, Span
from policy.values import Value

MAX_PROBLEMS = 50  # nobody reads more, and a hostile text must not cause an endless message
MAX_DEPTH = 200  # bounds the recursion of later passes over formulas
MAX_SHOWN = 40  # characters of user text in a message


@dataclass(slots=True)
class Notes:
    source: Source
    problems: list[Problem] = field(default_factory=list)
    depth: int = 0
    values: dict[str, Value] = field(default_factory=dict)  # string literals seen before, by their source text

    def refuse(self, span: Span, message: str, hint: str = "") -> None:
        """Note an error, unless one is noted at the same start: the later one is most likely its consequence.

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
            self.problems.append(Problem(f"nested more than {MAX_DEPTH} deep", span, "give inner parts names as rules"))
            self.reject()

    def leave(self) -> None:
        self.depth -= 1

    def reject(self) -> NoReturn:
        raise PolicyRejected(self.source, tuple(self.problems))


def shown(text: str) -> str:
    """Return user text for a message, clipped and in backticks."""
    return f"`{clipped(text)}`"


def clipped(text: str) -> str:
    """Return user text for a message, cut to MAX_SHOWN characters; what is not printable is then escaped."""
    short = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in short)


def spelled_out(text: str, kept: str = "") -> str:
    """Return user text for a line of a report: unprintable characters that are not in `kept` are escaped as in JSON."""
    return "".join(char if char.isprintable() or char in kept else json.dumps(char)[1:-1] for char in text)
