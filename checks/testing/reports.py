"""Report test runs as text, JUnit XML and GitHub annotations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from xml.etree import ElementTree

from checks.testing import policy_tests
from policy import rules
from policy.files import Bundle
from policy.language.nodes import spelled_out
from policy.language.source import PolicyRejected, Problem
from policy.management.command import annotation, problem_line
from policy.publishing import results_of
from policy.rules.program import Program
from policy.testing import TestOutcome, TestReport

# ---- A run of the tests in policy files: what came of each, and which rules they exercise -------------------------


@dataclass(frozen=True)
class CoverageReport:
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
    coverage: CoverageReport | None = None
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


def _coverage(program: Program, bundle: Bundle) -> CoverageReport:
    missing = policy_tests.uncovered(program, policy_tests.covered(program))
    source = program.source
    lines = [bundle.line_of_file(source.position(span.start)[0]) for span in missing]
    texts = [" ".join(source.text[span.start : span.end].split()) for span in missing]
    return CoverageReport(len(program.written), tuple((*line, text) for line, text in zip(lines, texts)))


# ---- Every assertion on a line, for people ------------------------------------------------------------------------


def text(ran: Ran) -> list[str]:
    lines = []
    for test in ran.report.tests:
        lines.append(f"{'FAIL' if test.failures else 'ok'} {spelled_out(test.name)}: {test.passed} of {test.total}")
        for one in test.assertions:
            line = spelled_out(f"{ran.bundle.place_of_line(one.line)}: {' '.join(one.text.split())}")
            lines.append(f"  {'ok' if one.passed else 'FAIL'} {line}")
            if not one.passed:
                lines.append(f"       {spelled_out(one.message)}")
    lines.append(results_of(ran.report) if ran.report.tests else "there are no tests")
    return [*lines, *coverage_lines(ran.coverage)]


def coverage_lines(coverage: CoverageReport | None) -> list[str]:
    if coverage is None:
        return []
    return [coverage.sentence, *(spelled_out(f"  {file}:{line}: {rule}") for file, line, rule in coverage.missing)]


# ---- github -------------------------------------------------------------------------------------------------------
# Lines by which GitHub shows failures, and rules that no test exercises, beside the code; and the results in words.


def github(ran: Ran) -> list[str]:
    if ran.problems:
        return [problem_line(problem, ran.bundle) for problem in ran.problems]
    lines = []
    for test in ran.report.tests:
        for one in test.assertions:
            if not one.passed:
                file, line = ran.bundle.line_of_file(one.line)
                lines.append(annotation("error", one.message, f"test {test.name}", file, line=line))
    if ran.coverage:
        for file, line, rule in ran.coverage.missing:
            lines.append(annotation("warning", f"no test exercises {rule}", "Coverage", file, line=line))
    if ran.coverage_failure:
        lines.append(annotation("error", ran.coverage_failure, "Coverage"))
    lines.append(results_of(ran.report) if ran.report.tests else "there are no tests")
    return [*lines, ran.coverage.sentence] if ran.coverage else lines


# ---- junit --------------------------------------------------------------------------------------------------------
# JUnit's XML, which continuous integration reads: a suite for each file, and a case for each test of the policy.

_UNFIT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML does not allow
_WHOLE = "policy"  # the suite of the case that is about no file


def junit(ran: Ran) -> list[str]:
    root = ElementTree.Element("testsuites")
    suites: dict[str, ElementTree.Element] = {}
    for case in _cases(ran):
        file = case.get("classname", "")
        if file not in suites:
            suites[file] = ElementTree.SubElement(root, "testsuite", name=file)
        suites[file].append(case)
    for each in (root, *suites.values()):
        for name, element in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            each.set(name, str(len(list(each.iter(element)))))
    ElementTree.indent(root)
    return ['<?xml version="1.0" encoding="UTF-8"?>', ElementTree.tostring(root, "unicode")]


def _cases(ran: Ran) -> Iterator[ElementTree.Element]:
    for problem in ran.problems:
        part, span = ran.bundle.located(problem.span)
        line, _ = part.position(span.start)
        yield _case(part.filename, line, "is a policy", "error", problem.message, ran.bundle.describe(problem))
    for test in ran.report.tests:
        kind = "failure" if test.failures else ""
        yield _case(*ran.place_of(test), test.name, kind, _message(test), _details(test, ran))
    if ran.minimum is not None and not ran.problems:
        kind = "failure" if ran.coverage_failure else ""
        details = "\n".join(coverage_lines(ran.coverage))
        yield _case(_WHOLE, 0, "rules are exercised by tests", kind, ran.coverage_failure, details)


def _case(file: str, line: int, name: str, kind: str, message: str, details: str) -> ElementTree.Element:
    """Return a test case; `kind` is the element of its failure or error, empty if it passed."""
    place = {"file": _fit(file), "line": str(line)} if line else {}
    case = ElementTree.Element("testcase", {"name": _fit(name), "classname": _fit(file), **place})
    if kind:
        ElementTree.SubElement(case, kind, message=_fit(message)).text = _fit(details)
    return case


def _fit(text: str) -> str:
    return _UNFIT.sub("\ufffd", text)


def _message(test: TestOutcome) -> str:
    return f"{len(test.failures)} of {test.total} assertions failed"


def _details(test: TestOutcome, ran: Ran) -> str:
    failed = [one for one in test.assertions if not one.passed]
    places = [ran.bundle.place_of_line(one.line) for one in failed]
    return "\n".join(f"{place}: {one.message}\n  {' '.join(one.text.split())}" for place, one in zip(places, failed))


# ---- formats ------------------------------------------------------------------------------------------------------

FORMATS: dict[str, Callable[[Ran], list[str]]] = {"text": text, "junit": junit, "github": github}
