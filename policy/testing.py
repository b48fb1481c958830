"""The results of a policy's tests: classes shared by the test runner, publishing and commands."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AssertionOutcome:
    """The result of an assertion; `message` says what was found instead, and is empty if the assertion passed.

    `too_much`: the assertion failed because something holds that should not.
    """

    text: str  # as written
    line: int
    passed: bool
    message: str = ""
    too_much: bool = False


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
