"""JUnit's XML, which continuous integration reads: a suite for each file, and a case for each test of the policy."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from checks.testing.reports.ran import Ran
from checks.testing.reports.text import coverage_lines
from policy.testing import TestOutcome

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
