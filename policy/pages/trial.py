"""Results of running the tests of a version again, for pages: before it is made active, or when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.utils.safestring import SafeString

from policy import publishing
from policy.figures import Coverage, Figures
from policy.language.source import Source, Span
from policy.pages.excerpts import Excerpt, excerpts_of_failures
from policy.pages.highlight import highlighted_lines
from policy.rules.program import Program
from policy.testing import TestOutcome

MOST_SHOWN = 200  # tests that pass, and rules that no test exercises
MOST_FAILURES = 50
MAX_WIDTH = 160  # characters of a rule
SECONDS = 8.0  # time limit for finding which rules are exercised


@dataclass(frozen=True)
class Trial:
    """The results of the tests and, if asked for, which rules they exercise."""

    figures: Figures
    tests: tuple[TestOutcome, ...] = ()
    failures: list[Excerpt] = field(default_factory=list)
    untested: str = ""  # why the tests were not run to their end
    coverage: Coverage | None = None
    missing: tuple[tuple[int, SafeString], ...] = ()  # line and text of rules that no test exercises
    is_covering: bool = False

    @property
    def is_good(self) -> bool:
        return not self.failures and not self.untested

    @property
    def hidden_failures(self) -> int:
        return sum(len(test.failures) for test in self.tests) - len(self.failures)

    @property
    def hidden_missing(self) -> int:
        return len(self.coverage.missing) - len(self.missing) if self.coverage else 0


def trial_of(program: Program, covering: bool = False) -> Trial:
    drafted = publishing.tried(program)
    coverage = publishing.coverage(program, SECONDS) if covering and not drafted.untested else None
    report = None if drafted.untested else drafted.report
    failures = excerpts_of_failures(program.source, drafted.report)[:MOST_FAILURES]
    missing = coverage.missing[:MOST_SHOWN] if coverage else ()
    return Trial(
        Figures.of_run(len(program.tests), report, coverage),
        drafted.report.tests,
        failures,
        drafted.untested,
        coverage,
        tuple(_rule(program.source, span) for span in missing),
        covering,
    )


def _rule(source: Source, span: Span) -> tuple[int, SafeString]:
    text = " ".join(source.text[span.start : span.end].split())
    shown = text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 1]}…"
    return source.position(span.start)[0], highlighted_lines(shown)[0]
