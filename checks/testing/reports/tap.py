"""The Test Anything Protocol, version 14: a test of the policy is a test point, and its failures stand below it.

TAP version 14
1..2
ok 1 - members read
not ok 2 - owners delete
  ---
  failures:
    - at: "main.polar:19"
      assertion: "assert_not allow(User{\\"ann\\"}, \\"delete\\", Repository{\\"anvil\\"})"
      message: "it holds"
  ...
"""

import json

from checks.testing.reports.ran import Ran
from checks.testing.reports.text import coverage_lines
from policy.language.notes import spelled_out
from policy.testing import TestOutcome


def tap(ran: Ran) -> list[str]:
    lines = ["TAP version 14"]
    if ran.problems:
        described = [line for problem in ran.problems for line in ran.bundle.describe(problem).split("\n")]
        return [*lines, *(f"# {spelled_out(line)}" for line in described), "Bail out! the policy is not accepted"]
    tests = ran.report.tests
    lines.append(f"1..{len(tests) + (ran.minimum is not None)}")
    for number, test in enumerate(tests, 1):
        lines.append(f"{'not ok' if test.failures else 'ok'} {number} - {_described(test.name)}")
        lines += _failures(test, ran)
    if ran.minimum is not None:
        found = "not ok" if ran.coverage_failure else "ok"
        lines.append(f"{found} {len(tests) + 1} - at least {ran.minimum:g} % of the rules are exercised by a test")
    return [*lines, *(f"# {line}" for line in coverage_lines(ran.coverage))]


def _failures(test: TestOutcome, ran: Ran) -> list[str]:
    if not test.failures:
        return []
    lines = ["  ---", "  failures:"]
    for one in test.assertions:
        if not one.passed:
            lines.append(f"    - at: {_scalar(ran.bundle.place_of_line(one.line))}")
            lines.append(f"      assertion: {_scalar(' '.join(one.text.split()))}")
            lines.append(f"      message: {_scalar(one.message)}")
    return [*lines, "  ..."]


def _scalar(text: str) -> str:
    """Return the text as a YAML scalar: every JSON string is one."""
    return json.dumps(text)


def _described(name: str) -> str:
    """Return the name on one line, with backslashes and `#` escaped: a `#` could begin a directive."""
    return spelled_out(" ".join(name.split())).replace("\\", "\\\\").replace("#", "\\#")
