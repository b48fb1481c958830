"""The results of running a policy's tests: the classes that the runner, uploads and commands share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AssertionOutcome:
    """One assertion that was run; `message` says what was found instead, and is empty if the assertion passed.

    `too_much`: the assertion failed because something holds which it says does not hold.
    """

    text: str  # as written
    line: int
    passed: bool
    message: str = ""
    too_much: bool = False


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """One test that was run. `total` counts all its assertions, also those that a run with `fail_fast` left out."""

    __test__ = False  # pytest collects classes named Test…; this is none of its

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
    """Every test that was run, in the order of the text."""

    __test__ = False

    tests: tuple[TestOutcome, ...] = ()

    @property
    def success(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> tuple[str, ...]:
        """Return a sentence for each assertion that failed."""
        return tuple(failure for test in self.tests for failure in test.failures)
