"""Report test runs as text, JUnit XML and GitHub annotations."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from checks.testing import policy_tests
from policy import rules
from policy.ground.files import Bundle
from policy.language.nodes import spelled_out
from policy.language.source import PolicyRejected, Problem
from policy.management.github import annotation, problem_line
from policy.publishing import results_of
from policy.rules.program import Program
from policy.testing import TestOutcome, TestReport

# ---- A run of the tests in policy files: what came of each, and which rules they exercise -------------------------


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
    missing = policy_tests.uncovered(program, policy_tests.covered(program))
    source = program.source
    lines = [bundle.line_of_file(source.position(span.start)[0]) for span in missing]
    texts = [" ".join(source.text[span.start : span.end].split()) for span in missing]
    return Coverage(len(program.written), tuple((*line, text) for line, text in zip(lines, texts)))


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


def coverage_lines(coverage: Coverage | None) -> list[str]:
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

FAILURE, ERROR = "failure", "error"
_UNFIT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML does not allow
_SPACES = {"\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}  # an attribute keeps these as references only
_WHOLE = "policy"  # the suite of the case that is about no file


@dataclass(frozen=True, slots=True)
class _Case:
    """A test case. `kind` is the element of its failure or error; empty if it passed."""

    file: str
    line: int
    name: str
    kind: str = ""
    message: str = ""
    details: str = ""


def junit(ran: Ran) -> list[str]:
    cases = list(_cases(ran))
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', _opened("testsuites", **_counts(cases))]
    for file in dict.fromkeys(case.file for case in cases):
        own = [case for case in cases if case.file == file]
        lines.append(f"  {_opened('testsuite', name=file, **_counts(own))}")
        lines += [line for case in own for line in _case_lines(case)]
        lines.append("  </testsuite>")
    return [*lines, "</testsuites>"]


def _cases(ran: Ran) -> Iterator[_Case]:
    for problem in ran.problems:
        part, span = ran.bundle.located(problem.span)
        line, _ = part.position(span.start)
        yield _Case(part.filename, line, "is a policy", ERROR, problem.message, ran.bundle.describe(problem))
    for test in ran.report.tests:
        file, line = ran.place_of(test)
        failed = {"kind": FAILURE, "message": _message(test), "details": _details(test, ran)} if test.failures else {}
        yield _Case(file, line, test.name, **failed)
    if ran.minimum is not None and not ran.problems:
        kind = FAILURE if ran.coverage_failure else ""
        details = "\n".join(coverage_lines(ran.coverage))
        yield _Case(_WHOLE, 0, "rules are exercised by tests", kind, ran.coverage_failure, details)


def _message(test: TestOutcome) -> str:
    return f"{len(test.failures)} of {test.total} assertions failed"


def _details(test: TestOutcome, ran: Ran) -> str:
    failed = [one for one in test.assertions if not one.passed]
    places = [ran.bundle.place_of_line(one.line) for one in failed]
    return "\n".join(f"{place}: {one.message}\n  {' '.join(one.text.split())}" for place, one in zip(places, failed))


# ---- XML ----------------------------------------------------------------------------------------------------------


def _counts(cases: list[_Case]) -> dict[str, int]:
    kinds = [case.kind for case in cases]
    return {"tests": len(cases), "failures": kinds.count(FAILURE), "errors": kinds.count(ERROR)}


def _case_lines(case: _Case) -> list[str]:
    place = {"file": case.file, "line": case.line} if case.line else {}
    opened = _opened("testcase", name=case.name, classname=case.file, **place)
    if not case.kind:
        return [f"    {opened[:-1]}/>"]
    reason = _opened(case.kind, message=case.message)
    return [f"    {opened}", f"      {reason}{_escaped(case.details)}</{case.kind}>", "    </testcase>"]


def _opened(element: str, **attributes: object) -> str:
    written = "".join(f' {name}="{_attribute(str(value))}"' for name, value in attributes.items())
    return f"<{element}{written}>"


def _attribute(text: str) -> str:
    escaped = _escaped(text)
    for char, reference in _SPACES.items():
        escaped = escaped.replace(char, reference)
    return escaped


def _escaped(text: str) -> str:
    return html.escape(_UNFIT.sub("\ufffd", text))


# ---- formats ------------------------------------------------------------------------------------------------------

FORMATS: dict[str, Callable[[Ran], list[str]]] = {"text": text, "junit": junit, "github": github}
