"""What a check of the service found of one thing: a line of the report."""

from __future__ import annotations

from typing import NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class CheckFinding(NamedTuple):
    """A line of the report. Whoever reads `warn` or `fail` also reads what to do. Never with a secret in it."""

    state: str  # one of the three above
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.state:<4}  {self.name:<12}  {self.text}"


def ok(name: str, text: str) -> CheckFinding:
    return CheckFinding(OK, name, text)


def warn(name: str, text: str) -> CheckFinding:
    return CheckFinding(WARN, name, text)


def fail(name: str, text: str) -> CheckFinding:
    return CheckFinding(FAIL, name, text)


def judged(name: str, fails: list[str], warnings: list[str], otherwise: str) -> CheckFinding:
    """Return one finding of all that is wrong with a thing, the worst first."""
    found = "; ".join([*fails, *warnings])
    if fails:
        return fail(name, found)
    return warn(name, found) if warnings else ok(name, otherwise)
