"""What is wrong with the text of a policy.

A `Problem` is one mistake: data, collected by the passes and raised together as `PolicyRejected`.
"""

from __future__ import annotations

from dataclasses import dataclass

from policy.errors import AuthzError
from policy.language.source import Source, Span


@dataclass(frozen=True, slots=True)
class Problem:
    message: str
    span: Span
    hint: str = ""
    severity: str = "error"  # or "warning"

    def describe(self, source: Source) -> str:
        """Return `file:line:column: message (hint)`, then the source line with carets under the place."""
        advice = f" ({self.hint})" if self.hint else ""
        line, column = source.position(self.span.start)
        place = f"{source.filename or 'policy'}:{line}:{column}"
        return f"{place}: {self.message}{advice}\n{source.snippet(self.span)}"


class PolicyRejected(AuthzError):
    """Raised for a text that is not a valid policy; `problems` has all mistakes found, in text order."""

    version: int | None = None  # the published version with this text, if `of_version` set one

    def __init__(self, source: Source, problems: tuple[Problem, ...]):
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.span.start, problem.message)))
        self.descriptions = tuple(problem.describe(source) for problem in self.problems)
        super().__init__("\n".join(self.descriptions))

    def of_version(self, number: int) -> PolicyRejected:
        """Return this error for published version `number`. Its `body` lists no problems: the request is not wrong."""
        found = PolicyRejected(self.source, self.problems)
        found.version = number
        found.message = f"policy version {number} does not compile any more:\n{self.message}"
        return found

    @property
    def body(self) -> dict[str, object]:
        if self.version is not None:
            return super().body
        errors = [{"error_type": "ValidationFailed", "message": text} for text in self.descriptions]
        return {"error_type": "Validation", "message": self.message, "errors": errors}
