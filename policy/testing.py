"""The results of a policy's tests: classes shared by the test runner, publishing and commands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

LineName = Callable[[int], str]  # from a line's number to how it is written: `line 3`, or `main.polar:3`


def line_named(line: int) -> str:
    return f"line {line}"


def _no_lines(place: LineName) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class AssertionOutcome:
    """The result of an assertion; `message` says what was found instead, and is empty if the assertion passed.

    `extent` says how far a passed `assert_never` was checked. `too_much`: the assertion failed because something holds
    that should not. `explanation` returns the lines of a proof of that, or of what is missing; none if the assertion
    passed, or if that is not known.
    """

    text: str  # as written
    line: int
    passed: bool
    message: str = ""
    extent: str = ""
    too_much: bool = False
    explanation: Callable[[LineName], Sequence[str]] = field(default=_no_lines, compare=False)


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The result of a test. `total` counts all its assertions, including those skipped by `fail_fast`."""

    __test__ = False  # pytest collects classes named Test…; this is not one

    name: str
    total: int
    assertions: tuple[AssertionOutcome, ...]

    @property
    def passed(self) -> int:
        return sum(assertion.passed for assertion in self.assertions)

    @property
    def failures(self) -> tuple[str, ...]:
        failed = (assertion for assertion in self.assertions if not assertion.passed)
        return tuple(f"test `{self.name}`, line {one.line}: {one.message}" for one in failed)


@dataclass(frozen=True, slots=True)
class TestReport:
    """The results of all tests that were run, in text order."""

    __test__ = False

    tests: tuple[TestOutcome, ...] = ()

    @property
    def success(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> tuple[str, ...]:
        """Return a sentence for each failed assertion."""
        return tuple(failure for test in self.tests for failure in test.failures)

    @property
    def explained_errors(self) -> tuple[str, ...]:
        """Return a sentence for each failed assertion, followed by its explanation in indented lines."""
        failed = [(test, one) for test in self.tests for one in test.assertions if not one.passed]
        return tuple(
            "\n  ".join([f"test `{test.name}`, line {one.line}: {one.message}", *one.explanation(line_named)])
            for test, one in failed
        )
