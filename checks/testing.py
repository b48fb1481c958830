"""Run the tests of a policy, measure its coverage, and report on both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, product
from typing import NamedTuple
from xml.etree import ElementTree

from django.utils.module_loading import import_string

from checks.asking import run as statements
from checks.asking.advice import NAMINGS
from checks.asking.limits import check, shortened
from checks.asking.question import Asked, Question, TypedId, question_about
from checks.asking.snapshot import FactsAlone, fact_of_atom
from checks.errors import CannotEnumerate, TestsTooSlow
from checks.explain.cases import ANY, Goal
from checks.explain.explain import ExplainedGoal, explain_goal, lines_of_goal
from policy import rules
from policy.errors import AuthzError, Unavailable
from policy.files import Bundle
from policy.language.source import PolicyRejected, Problem, Span, spelled_out
from policy.management.command import annotation, problem_line
from policy.publishing import AssertionOutcome, Coverage, LineName, TestOutcome, TestReport, results_of
from policy.rules.program import Assertion, Atom, Program, Rule, Signature, Test, Var
from policy.values import STRING, Value, quoted

# ---- policy tests -------------------------------------------------------------------------------------------------
# Runs the tests of a policy on the engine that answers questions, each over its own facts only.
#
# Assertions that differ in only one argument become one question, whose answer tells which of them hold.

MOST_SHOWN = 12  # values of a list
CHECKED_NEVER = "checks.analysis.questions.checked_never"  # imported with the first `assert_never`


def run(program: Program, fail_fast: bool = False) -> TestReport:
    """Run the tests and return their results; with `fail_fast`, stop after the first failure."""
    session = FactsAlone.of_signatures(program, signatures_of(program))
    outcomes: list[TestOutcome] = []
    explainer = _FailureExplainer()
    for test in program.tests:
        outcomes.append(_outcome(session, test, fail_fast, explainer))
        if fail_fast and outcomes[-1].failures:
            return TestReport(tuple(each for each in outcomes if each.assertions))
    invariants = [each for test in program.tests for each in test.invariants]
    checked = iter(import_string(CHECKED_NEVER)(program, invariants) if invariants else ())
    return TestReport(
        tuple(
            replace(outcome, assertions=(*outcome.assertions, *islice(checked, len(test.invariants))))
            for test, outcome in zip(program.tests, outcomes)
        )
    )


def signatures_of(program: Program) -> frozenset[Signature]:
    """Return the signatures of the facts in all tests: with these, a question has the same shape in every test."""
    return frozenset(fact_of_atom(atom).signature for test in program.tests for atom in test.facts)


def _outcome(session: FactsAlone, test: Test, fail_fast: bool, explainer: _FailureExplainer) -> TestOutcome:
    outcomes: list[AssertionOutcome] = []
    test_run = _TestRun(session.over(test.facts), _groups(test.assertions), {})
    for assertion in test.assertions:
        message, too_much, witness = _verdict(test_run, assertion)
        line, _ = session.program.source.position(assertion.span.start)
        outcome = AssertionOutcome(assertion.text, line, not message, message, too_much=too_much)
        if witness is not None:
            outcome = replace(outcome, explanation=explainer.explanation(test_run.session, assertion, witness))
        outcomes.append(outcome)
        if fail_fast and message:
            break
    return TestOutcome(test.name, len(test.assertions) + len(test.invariants), tuple(outcomes))


# ---- why an assertion fails ---------------------------------------------------------------------------------------
# The proof of what holds but should not, or what is missing of what should, as `ask authorize --explain` prints it.

MOST_EXPLAINED = 5  # failed assertions of a run
EXPLAINING = 2.0  # seconds of CPU time, after which no more are explained
MOST_LINES = 16  # of an explanation
LONGEST_LINE = 200  # characters


@dataclass
class _FailureExplainer:
    """Explains the first failures of a run, within a time limit."""

    explained: int = 0
    spent: float = 0.0

    def explanation(
        self, session: FactsAlone, assertion: Assertion, witness: TypedId
    ) -> Callable[[LineName], Sequence[str]]:
        """Return the function for `AssertionOutcome.explanation`; `witness` is the value of the variable, if any."""
        goal = None
        if self.explained < MOST_EXPLAINED and self.spent < EXPLAINING:
            self.explained += 1
            began = session.spent
            goal = _explained(session, assertion, witness)
            self.spent += session.spent - began
        return partial(_explanation, goal)


def _explained(session: FactsAlone, assertion: Assertion, witness: TypedId) -> ExplainedGoal | None:
    """Explain the assertion's atom; return None if that fails, since the failure alone is reported then."""
    value = Value(witness[0], ANY if witness[1] is None else witness[1])
    goal = Goal(
        assertion.atom.predicate, tuple([arg if isinstance(arg, Value) else value for arg in assertion.atom.args])
    )
    own = replace(session, answered={})  # a limit that ends the explanation must not end the tests
    try:
        with nullcontext() if statements.in_transaction() else statements.snapshot():
            return explain_goal(own, goal)
    except AuthzError:
        return None


def _explanation(goal: ExplainedGoal | None, place: LineName) -> Sequence[str]:
    if goal is None:
        return ()
    lines = [_cut(line) for line in islice(lines_of_goal(goal, place, given="fact of the test"), MOST_LINES + 1)]
    return lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], "…"]


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


# ---- one assertion -----------------------------------------------------------------------------------------------


class _Verdict(NamedTuple):
    """Why an assertion fails (empty if it passes), whether more holds than it states, and a value to explain."""

    message: str = ""
    too_much: bool = False
    witness: TypedId | None = None  # of the variable; of no type if there is none. None: nothing to explain


_PASSED = _Verdict()
_NO_VARIABLE: TypedId = ("", None)


def _verdict(test_run: _TestRun, assertion: Assertion) -> _Verdict:
    try:
        if assertion.iff_values is not None:
            return _verdict_on_list(test_run, assertion)
        held = test_run.holds(assertion)
        if held == assertion.expected:
            return _PASSED
        witness: TypedId | None = _NO_VARIABLE
        if assertion.variable_type is not None:
            witness = min(test_run.values(assertion), key=_by_type_and_id) if held else None
        return _Verdict(_message_on_truth(assertion, held), held, witness)
    except TestsTooSlow:
        raise
    except AuthzError as refusal:
        return _Verdict(refusal.message)


def _message_on_truth(assertion: Assertion, held: bool) -> str:
    if assertion.variable_type is None:
        return f"expected {_truth(assertion.expected)}, got {_truth(held)}"
    return "expected a value, got none" if assertion.expected else "expected no value, got one or more"


def _truth(held: bool) -> str:
    return "true" if held else "false"


def _verdict_on_list(test_run: _TestRun, assertion: Assertion) -> _Verdict:
    """Return the verdict on an assertion that lists all values of its variable for which it holds."""
    wanted: set[TypedId] = {(value.type, value.id) for value in assertion.iff_values or ()}
    if assertion.iff_negated:
        wanted = _declared_names(test_run.session.program, assertion) - wanted
    try:
        found = test_run.values(assertion)
        got = _enumerated(found)
    except CannotEnumerate:
        found, got = None, "all values except some"
    if (found == wanted) == assertion.expected:
        return _PASSED
    message = f"expected {'' if assertion.expected else 'anything but '}{_enumerated(wanted)}, got {got}"
    differing = sorted((found or set()) - wanted, key=_by_type_and_id) or sorted(wanted - (found or wanted))
    return _Verdict(message, found is None or not found <= wanted, differing[0] if differing else None)


def _by_type_and_id(each: TypedId) -> tuple[str, bool, str]:
    """Return a sort key: None, which stands for every value, precedes all ids of its type."""
    return each[0], each[1] is not None, each[1] or ""


def _enumerated(values: Iterable[TypedId]) -> str:
    shown = [_shown(*each) for each in sorted(values, key=_by_type_and_id)]
    if len(shown) > MOST_SHOWN:
        shown = [*shown[: MOST_SHOWN - 1], f"{len(shown) - MOST_SHOWN + 1} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown) or "nothing"


def _shown(type_name: str, text: str | None) -> str:
    if text is None:
        return f"every {type_name}"
    return quoted(text) if type_name == STRING else str(Value(type_name, text))


def _declared_names(program: Program, assertion: Assertion) -> set[TypedId]:
    """Return the names that blocks declare for the variable's position, from which `not in` excludes some."""
    args, names = assertion.atom.args, None
    if len(args) > 1 and isinstance(args[1], Var) and assertion.variable_type == STRING:
        names = _names_declared(program, assertion.atom.predicate, args)
    if names is None:
        raise AuthzError(
            "`not in` requires roles, permissions or relations that a block declares; list the values with `in`"
        )
    return {(STRING, name) for name in names}


def _names_declared(program: Program, predicate: str, args: tuple) -> Iterable[str] | None:
    naming = NAMINGS.get((predicate, len(args)))
    if naming is not None:
        block = program.types.get(args[naming.owner].type)
        return None if block is None else naming.declared(block)
    if len(args) != 2:
        return None
    if predicate == "has_role":
        return program.global_roles or None
    return program.global_permissions if predicate in ("allow", "has_permission") else None


# ---- questions -----------------------------------------------------------------------------------------------------


class _AssertionGroup(NamedTuple):
    """What assertions that differ in one argument only have in common: its position and type, and the others."""

    predicate: str
    place: int
    type: str
    args: tuple[Value | None, ...]  # None at the position of that argument

    def question(self, ids: tuple[str, ...]) -> Question:
        """Return the question for which of these ids the assertions' atom holds."""
        asked = [Asked(self.type, ids) if arg is None else Asked(arg.type, (arg.id,)) for arg in self.args]
        return question_about(self.predicate, asked, (self.place,))


@dataclass
class _TestRun:
    """A test's session and assertions; `known` has the answers so far."""

    session: FactsAlone  # over the test's facts
    groups: dict[_AssertionGroup, dict[str, None]]
    known: dict[_AssertionGroup, set[str | None]]

    def holds(self, assertion: Assertion) -> bool:
        if assertion.variable_type is not None or not assertion.atom.args:
            return any(self.session.holds(each) for each in self._questions(assertion))
        group, text = _group(assertion)
        if group not in self.known:
            rows = self.session.answers(group.question(tuple(self.groups[group])))
            self.known[group] = {row[0] for row in rows}
        return text in self.known[group]

    def values(self, assertion: Assertion) -> set[TypedId]:
        """Return the values that the variable can have."""
        found: set[TypedId] = set()
        (name,) = [f"argument{place}" for place, arg in enumerate(assertion.atom.args) if isinstance(arg, Var)]
        for question in self._questions(assertion):
            rows = self.session.answers(question._replace(outs=(name,)))
            found.update((question.variables[name].type, row[0]) for row in rows)
        return found

    def _questions(self, assertion: Assertion) -> list[Question]:
        """Return a question for each type that the variable can have; a single question if there is no variable."""
        if assertion.variable_type is None:
            return [_question(assertion, "")]
        types = self.session.program.subtypes.get(assertion.variable_type, frozenset())
        return [_question(assertion, name) for name in sorted(types)]


def _question(assertion: Assertion, variable_type: str) -> Question:
    args = assertion.atom.args
    asked = [Asked(arg.type, (arg.id,)) if isinstance(arg, Value) else Asked(variable_type) for arg in args]
    return question_about(assertion.atom.predicate, asked)


def _groups(assertions: Iterable[Assertion]) -> dict[_AssertionGroup, dict[str, None]]:
    """Return the ids that each group's assertions have at its position."""
    groups: dict[_AssertionGroup, dict[str, None]] = {}
    for assertion in assertions:
        if assertion.variable_type is None and assertion.atom.args:
            group, text = _group(assertion)
            groups.setdefault(group, {})[text] = None
    return groups


def _group(assertion: Assertion) -> tuple[_AssertionGroup, str]:
    """Return the assertion's group, and the id of the argument that the group leaves out.

    That is the last argument that is not a string; if all are strings, the last one.
    """
    args = [arg for arg in assertion.atom.args if isinstance(arg, Value)]
    assert len(args) == len(assertion.atom.args), "an assertion without a variable has values alone"
    place = max(range(len(args)), key=lambda index: (args[index].type != STRING, index))
    others = tuple(None if index == place else arg for index, arg in enumerate(args))
    return _AssertionGroup(assertion.atom.predicate, place, args[place].type, others), args[place].id


# ---- Which rules the tests of a policy exercise -------------------------------------------------------------------
# A rule is exercised if, over the facts of some test, its body holds for values that the test mentions, or for names of
# the policy. If an unexercised rule were removed, or never worked, no test would fail.

_IdsByType = dict[str, tuple[str, ...]]


def measured(program: Program, seconds: float) -> Coverage | None:
    """Return the coverage of the policy's tests; None if that takes too long, or a rule cannot be checked."""
    if not program.tests:
        return Coverage(len(program.written), tuple(uncovered(program, frozenset())))
    try:
        with shortened(seconds):
            return Coverage(len(program.written), tuple(uncovered(program, covered(program))))
    except (AuthzError, Unavailable):
        return None


def covered(program: Program) -> frozenset[Span]:
    """Return the spans of the rules that some test exercises.

    Each rule is checked by a predicate of its own:

        has_role(u, "reader", d) if owns(u, d)   ->   rule 3(u, d) if owns(u, d)
    """
    rules = (rule for alternatives in program.written.values() for rule in alternatives)
    left = {f"rule {index}": rule for index, rule in enumerate(rules)}  # names in policies have no spaces
    probes = tuple(replace(rule, head=_probe(name, rule)) for name, rule in left.items())
    probing = replace(program, rules=program.rules + probes)
    session = FactsAlone.of_signatures(probing, signatures_of(program))
    found: set[Span] = set()
    for test in program.tests:
        over, mentioned = session.over(test.facts), _mentioned(program, test)
        for name, rule in list(left.items()):
            check()
            if any(over.holds(question) for question in _questions(name, rule, mentioned)):
                found.add(left.pop(name).origin)
    return frozenset(found)


def uncovered(program: Program, found: frozenset[Span]) -> list[Span]:
    return sorted(program.written.keys() - found, key=lambda span: span.start)


def _probe(name: str, rule: Rule) -> Atom:
    return Atom(name, tuple(dict.fromkeys(term for term in rule.head.args if isinstance(term, Var))))


def _questions(name: str, rule: Rule, mentioned: _IdsByType) -> Iterator[Question]:
    """Yield a question for each typing of the rule's head: does its body hold for some of the mentioned values?"""
    variables = [term.name for term in _probe(name, rule).args if isinstance(term, Var)]
    choices = [sorted(rule.types[Var(variable)] & mentioned.keys()) for variable in variables]
    for types in product(*choices):
        asked = {variable: Asked(type_name, mentioned[type_name]) for variable, type_name in zip(variables, types)}
        yield Question(((name, tuple(variables)),), asked)


def _mentioned(program: Program, test: Test) -> _IdsByType:
    ids: dict[str, dict[str, None]] = {}
    for value in _values(program, test):
        ids.setdefault(value.type, {})[value.id] = None
    return {type_name: tuple(texts) for type_name, texts in ids.items()}


def _values(program: Program, test: Test) -> Iterable[Value]:
    for atom in (*test.facts, *(assertion.atom for assertion in test.assertions)):
        yield from (arg for arg in atom.args if isinstance(arg, Value))
    for assertion in test.assertions:
        yield from assertion.iff_values or ()
    for name in program.names:
        yield Value(STRING, name)


# ---- A run of the tests in policy files: their results, and the coverage ------------------------------------------


@dataclass(frozen=True)
class Ran:
    """The tests of files that make up one policy; if the policy is rejected (`refused`), none is run."""

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
        """Return why the coverage is too low; empty if it is high enough."""
        if self.coverage is None or self.minimum is None or self.coverage.percent >= self.minimum:
            return ""
        # Rounded down, so that 89.99 % is not shown as 90 %.
        percent = int(self.coverage.percent * 10) / 10
        return f"{self.coverage.sentence}, {percent:g} %; at least {self.minimum:g} % are required"

    @property
    def failures(self) -> tuple[str, ...]:
        """Return why the run fails; empty if it succeeds."""
        failed = () if self.report.success else (results_of(self.report),)
        return (*failed, self.coverage_failure) if self.coverage_failure else failed

    @property
    def missing(self) -> list[tuple[str, int, str]]:
        """Return the file, the line and the text of each rule that no test exercises."""
        found = map(self.bundle.located, self.coverage.missing if self.coverage else ())
        return [(part.filename, part.position(span.start)[0], part.on_one_line(span)) for part, span in found]

    def place_of(self, test: TestOutcome) -> tuple[str, int]:
        """Return the file and the line of the test's first assertion."""
        return self.bundle.line_of_file(test.assertions[0].line)


def ran(bundle: Bundle, fail_fast: bool, covering: bool, minimum: float | None) -> Ran:
    try:
        program = rules.compile_text(bundle.text, bundle.filename)
    except PolicyRejected as reason:
        return Ran(bundle, TestReport(), refused=reason)
    report = run(program, fail_fast)
    coverage = None
    if covering or minimum is not None:
        coverage = Coverage(len(program.written), tuple(uncovered(program, covered(program))))
    return Ran(bundle, report, coverage, minimum)


# ---- Text: each assertion on a line -------------------------------------------------------------------------------


def text(ran: Ran) -> list[str]:
    lines = []
    for test in ran.report.tests:
        lines.append(f"{'FAIL' if test.failures else 'ok'} {spelled_out(test.name)}: {test.passed} of {test.total}")
        for one in test.assertions:
            extent = f" ({one.extent})" if one.extent else ""
            line = spelled_out(f"{ran.bundle.place_of_line(one.line)}: {' '.join(one.text.split())}{extent}")
            lines.append(f"  {'ok' if one.passed else 'FAIL'} {line}")
            if not one.passed:
                lines.append(f"       {spelled_out(one.message)}")
                lines += [f"         {spelled_out(each)}" for each in one.explanation(ran.bundle.place_of_line)]
    lines.append(results_of(ran.report) if ran.report.tests else "the policy has no tests")
    return [*lines, *coverage_lines(ran)]


def coverage_lines(ran: Ran) -> list[str]:
    if ran.coverage is None:
        return []
    return [ran.coverage.sentence, *(spelled_out(f"  {file}:{line}: {rule}") for file, line, rule in ran.missing)]


# ---- github -------------------------------------------------------------------------------------------------------
# Workflow commands by which GitHub annotates failures and unexercised rules in the code; and the results in words.


def github(ran: Ran) -> list[str]:
    if ran.problems:
        return [problem_line(problem, ran.bundle) for problem in ran.problems]
    lines = []
    for test in ran.report.tests:
        for one in test.assertions:
            if not one.passed:
                file, line = ran.bundle.line_of_file(one.line)
                told = "\n".join([one.message, *one.explanation(ran.bundle.place_of_line)])
                lines.append(annotation("error", told, f"test {test.name}", file, line=line))
    for file, line, rule in ran.missing:
        lines.append(annotation("warning", f"no test exercises {rule}", "Coverage", file, line=line))
    if ran.coverage_failure:
        lines.append(annotation("error", ran.coverage_failure, "Coverage"))
    lines.append(results_of(ran.report) if ran.report.tests else "the policy has no tests")
    return [*lines, ran.coverage.sentence] if ran.coverage else lines


# ---- junit --------------------------------------------------------------------------------------------------------
# JUnit XML, for continuous integration: a suite for each file, and a case for each test of the policy.

_UNFIT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML does not allow
_WHOLE = "policy"  # the suite of the case that belongs to no file


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
        details = "\n".join(coverage_lines(ran))
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
    lines = []
    for place, one in zip(places, failed):
        lines += [f"{place}: {one.message}", f"  {' '.join(one.text.split())}"]
        lines += [f"  {each}" for each in one.explanation(ran.bundle.place_of_line)]
    return "\n".join(lines)


# ---- formats ------------------------------------------------------------------------------------------------------

FORMATS: dict[str, Callable[[Ran], list[str]]] = {"text": text, "junit": junit, "github": github}
