"""A run of the tests in policy files: what came of each, and which rules they exercise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from checks.testing import coverage, policy_tests
from policy import rules
from policy.files import Bundle
from policy.language.rejection import PolicyRejected, Problem
from policy.publishing import results_of
from policy.rules.program import Program
from policy.testing import TestOutcome, TestReport


@dataclass(frozen=True)
class Coverage:
    """How many rules there are, and those that no test exercises: their files, lines and texts."""

    total: int
    missing: tuple[tuple[str, int, str], ...]

    @property
    def exercised(self) -> int:
        return self.total - len(self.missing)

    @property
    def percent(self) -> float:
        return 100 * self.exercised / self.total if self.total else 100.0

    @property
    def sentence(self) -> str:
        return f"{self.exercised} of {self.total} rules are exercised by a test"


@dataclass(frozen=True)
class Ran:
    """The tests of files that make one policy; where the policy is `refused`, none is run."""

    bundle: Bundle
    report: TestReport
    coverage: Coverage | None = None
    minimum: float | None = None  # percent of the rules that the tests must exercise
    refused: PolicyRejected | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.refused.problems if self.refused else ()

    @cached_property
    def coverage_failure(self) -> str:
        """Return why the tests exercise too few rules; empty if they exercise enough."""
        if self.coverage is None or self.minimum is None or self.coverage.percent >= self.minimum:
            return ""
        # Rounded down, so that 89.99 % is not shown as 90 %.
        percent = int(self.coverage.percent * 10) / 10
        return f"{self.coverage.sentence}, {percent:g} %; at least {self.minimum:g} % are asked for"

    @property
    def failures(self) -> tuple[str, ...]:
        """Return why the run fails; nothing if it does not."""
        failed = () if self.report.success else (results_of(self.report),)
        return (*failed, self.coverage_failure) if self.coverage_failure else failed

    def place_of(self, test: TestOutcome) -> tuple[str, int]:
        """Return the file and the line of the test's first assertion."""
        return self.bundle.line_of_file(test.assertions[0].line)


def ran(bundle: Bundle, fail_fast: bool, covering: bool, minimum: float | None) -> Ran:
    try:
        program = rules.compile_text(bundle.text, bundle.filename)
    except PolicyRejected as reason:
        return Ran(bundle, TestReport(), refused=reason)
    report = policy_tests.run(program, fail_fast)
    covered = _coverage(program, bundle) if covering or minimum is not None else None
    return Ran(bundle, report, covered, minimum)


def _coverage(program: Program, bundle: Bundle) -> Coverage:
    missing = coverage.uncovered(program, coverage.covered(program))
    source = program.source
    lines = [bundle.line_of_file(source.position(span.start)[0]) for span in missing]
    texts = [" ".join(source.text[span.start : span.end].split()) for span in missing]
    return Coverage(len(program.written), tuple((*line, text) for line, text in zip(lines, texts)))
