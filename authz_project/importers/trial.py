"""Runs the tests that were carried over, on the policy that they are in."""

from __future__ import annotations

from dataclasses import replace

from authz_project.importers.polar.scenarios import WrittenTests
from authz_project.importers.report import Report
from checks.testing.policy_tests import run
from policy.language import ast
from policy.rules.program import Program
from policy.testing import TestOutcome


def without_failures(program: Program, tests: WrittenTests, report: Report) -> WrittenTests:
    """Return the tests, without what the policy answers otherwise than the original.

    An assertion where the policy grants less is reported as lost, which --partial accepts. One where it grants more
    makes the import fail, with --partial too.
    """
    kept, places = [], []
    failed = 0
    for test, place, outcome in zip(tests.tests, tests.places, run(program).tests):
        for each in outcome.assertions:
            if not each.passed:
                failed += 1
                tell = report.needed if each.too_much else report.lost
                tell(place, f"test `{test.name.text}`: {' '.join(each.text.split())}: {each.message}")
        if passed := _passed(test, outcome):
            kept.append(replace(test, assertions=passed))
            places.append(place)
    if not failed:
        return tests
    fixture = tests.fixture if kept else None
    return replace(
        tests, fixture=fixture, tests=tuple(kept), places=tuple(places), assertions=max(tests.assertions - failed, 0)
    )


def _passed(test: ast.Test, outcome: TestOutcome) -> tuple[ast.Assertion, ...]:
    return tuple(each for each, said in zip(test.assertions, outcome.assertions) if said.passed)
