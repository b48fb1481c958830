"""What the editor is told about a text while it is written.

Each process compiles one text at a time and tests one text at a time, so that editors take little time from requests
that ask for decisions. If several texts of one window wait, only the last of them is compiled or tested.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256

from cachetools import LRUCache
from django.conf import settings
from django.utils.module_loading import import_string

from policy import rules
from policy.language.completion import Completions
from policy.language.source import PolicyRejected, Problem, Source
from policy.pages.excerpts import span_of_line
from policy.rules.program import Program, Test
from policy.testing import TestOutcome, TestReport

_KEPT = 400_000  # characters of all texts whose compiled programs are cached


class Overtaken(Exception):
    """A later text of the same window came while this one waited for its turn."""


class Turns:
    """A lock for which only the last waiter of each name counts: the others raise `Overtaken` once they get it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._there: Counter[object] = Counter()  # how many have come under a name and not left yet
        self._latest: dict[object, int] = {}  # kept until the last one leaves: earlier waiters compare with it

    @contextmanager
    def turn(self, name: object) -> Iterator[None]:
        number = self._come(name)
        try:
            with self._turn:
                if self._latest[name] != number:
                    raise Overtaken
                yield
        finally:
            self._leave(name)

    def _come(self, name: object) -> int:
        with self._counting:
            self._there[name] += 1
            self._latest[name] = self._latest.get(name, 0) + 1
            return self._latest[name]

    def _leave(self, name: object) -> None:
        with self._counting:
            self._there[name] -= 1
            if not self._there[name]:
                del self._there[name], self._latest[name]


_compiling, _testing = Turns(), Turns()
_programs: LRUCache[str, Program] = LRUCache(_KEPT, lambda program: len(program.source.text) + 1)
_changing = threading.Lock()


def program_of(source: Source, window: object) -> Program:
    """Return the text's program, from the cache or compiled; raise `PolicyRejected` or `Overtaken`."""
    digest = sha256(source.text.encode(errors="surrogatepass")).hexdigest()
    if (known := _known(digest)) is not None:
        return known
    with _compiling.turn(window):
        program = _known(digest) or rules.compile_source(source)
    with _changing:
        if len(source.text) < _KEPT:
            _programs[digest] = program
    return program


def _known(digest: str) -> Program | None:
    with _changing:
        return _programs.get(digest)


# ---- problems ----------------------------------------------------------------------------------------------------


def problems_to_json(source: Source, window: object) -> dict[str, object]:
    """Return the errors with their places; for a valid policy, its warnings and numbers of types, rules and tests."""
    try:
        program = program_of(source, window)
    except PolicyRejected as reason:
        return {"problems": [_problem(source, each) for each in reason.problems], "amounts": None}
    amounts = {"types": len(program.types), "rules": len(program.written), "tests": len(program.tests)}
    return {"problems": [_problem(source, each) for each in program.warnings], "amounts": amounts}


def _problem(source: Source, problem: Problem) -> dict[str, object]:
    line, column = source.position(problem.span.start)
    return {
        "severity": problem.severity, "message": problem.message, "hint": problem.hint,
        "line": line, "column": column, "start": problem.span.start, "end": problem.span.end,
    }  # fmt: skip


def completions_to_json(found: Completions) -> dict[str, object]:
    options = [{"text": each.text, "kind": each.kind, "detail": each.detail} for each in found.options]
    return {"start": found.start, "end": found.end, "options": options}


# ---- tests -------------------------------------------------------------------------------------------------------


def tests_to_json(source: Source, place: int | None, window: object) -> dict[str, object]:
    """Run the test at the place, or all tests if it is None; for a rejected text, return the number of problems."""
    try:
        program = program_of(source, window)
    except PolicyRejected as reason:
        return {"tests": None, "problems": len(reason.problems)}
    chosen = program.tests if place is None else _tests_at(program, place)
    with _testing.turn((window, place is None)):
        report: TestReport = import_string(settings.POLICY_TEST_RUNNER)(replace(program, tests=chosen), fail_fast=False)
    return {"tests": [_outcome(source, test, one) for test, one in zip(chosen, report.tests)]}


def _tests_at(program: Program, place: int) -> tuple[Test, ...]:
    """Return the first test that covers the line of the place, as a tuple; an empty one if there is none."""
    line = program.source.position(place)[0]
    for test in program.tests:
        first, last = program.source.position(test.span.start)[0], program.source.position(test.span.end)[0]
        if first <= line <= last:
            return (test,)
    return ()


def _outcome(source: Source, test: Test, outcome: TestOutcome) -> dict[str, object]:
    failed = [one for one in outcome.assertions if not one.passed]
    spans = [span_of_line(source, one.line) for one in failed]
    failures = [
        {"line": one.line, "message": one.message, "text": one.text, "start": span.start, "end": span.end}
        for one, span in zip(failed, spans)
    ]
    line, _ = source.position(test.span.start)
    shown = {"name": test.name, "line": line, "start": test.span.start, "end": test.span.end}
    return {**shown, "passed": outcome.passed, "total": outcome.total, "failures": failures}
