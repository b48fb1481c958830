"""What was found of one thing."""

from __future__ import annotations

from typing import NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class Finding(NamedTuple):
    """A line of the report. Whoever reads `warn` or `fail` also reads what to do. Never with a secret in it."""

    state: str  # one of the three above
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.state:<4}  {self.name:<12}  {self.text}"


def ok(name: str, text: str) -> Finding:
    return Finding(OK, name, text)


def warn(name: str, text: str) -> Finding:
    return Finding(WARN, name, text)


def fail(name: str, text: str) -> Finding:
    return Finding(FAIL, name, text)


def judged(name: str, fails: list[str], warnings: list[str], otherwise: str) -> Finding:
    """Return one finding of all that is wrong with a thing, the worst first."""
    told = "; ".join([*fails, *warnings])
    if fails:
        return fail(name, told)
    return warn(name, told) if warnings else ok(name, otherwise)
