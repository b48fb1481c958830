"""What a policy version keeps besides its text: the figures of its tests and their coverage, and a publisher's note."""

from __future__ import annotations

from dataclasses import dataclass

from policy.language.source import Span
from policy.models import PolicyVersion
from policy.testing import TestReport

MAX_NOTE = 500  # characters, of one line


def note_fault(note: str) -> str:
    """Say what is wrong with a note, or "". Lists and terminals show notes, so a note is one line of printable text."""
    if len(note) > MAX_NOTE:
        return f"must not be longer than {MAX_NOTE} characters"
    return "" if note.isprintable() else "must not contain control characters"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many rules a policy has, and where the rules stand that none of its tests exercises."""

    rules: int
    missing: tuple[Span, ...] = ()

    @property
    def exercised(self) -> int:
        return self.rules - len(self.missing)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures found when a version was published; None: not known."""

    tests: int | None = None
    failed_tests: int | None = None
    rules: int | None = None
    exercised_rules: int | None = None

    @classmethod
    def of_version(cls, version: PolicyVersion) -> Figures:
        return cls(version.tests, version.failed_tests, version.rules, version.exercised_rules)

    @classmethod
    def of_run(cls, tests: int, report: TestReport | None, coverage: Coverage | None) -> Figures:
        """Return the figures of so many tests. `report` is None if the tests were not run to their end."""
        failed = sum(bool(test.failures) for test in report.tests) if report is not None else None
        if coverage is None:
            return cls(tests, failed)
        return cls(tests, failed, coverage.rules, coverage.exercised)

    @property
    def tests_text(self) -> str:
        """Return `12 passed`, `1 of 12 failed` or the like; "" if not known."""
        if self.tests is None:
            return ""
        if not self.tests:
            return "none"
        if self.failed_tests is None:
            return f"{self.tests:,} not run to their end"
        return f"{self.failed_tests:,} of {self.tests:,} failed" if self.failed_tests else f"{self.tests:,} passed"

    @property
    def tests_mood(self) -> str:
        """Return the CSS class of the tests' result, `good` or `bad`; "" if there are no tests, or none known."""
        if not self.tests:
            return ""
        return "good" if self.failed_tests == 0 else "bad"

    @property
    def coverage_text(self) -> str:
        """Return `9 of 10 rules`; "" if not known."""
        if self.rules is None or self.exercised_rules is None:
            return ""
        return f"{self.exercised_rules:,} of {self.rules:,} rules" if self.rules else "no rules"

    @property
    def percent(self) -> int | None:
        """Return the percentage of rules that tests exercise, rounded down: 100 means all; None if not known."""
        if not self.rules or self.exercised_rules is None:
            return None
        return 100 * self.exercised_rules // self.rules
