"""Runs the tests of a policy on the engine that answers questions, each over nothing but its own facts.

Assertions that differ in one argument are one question. Its answer holds for each of them what the assertion's own
question would have said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from checks.asking.facts_alone import FactsAlone, fact_of_atom
from checks.asking.question import Asked, Question
from checks.engine.errors import CannotEnumerate
from checks.errors import NoNamesDeclared, TestsTooSlow
from policy.errors import AuthzError
from policy.rules.program import Assertion, Program, Test, Var
from policy.testing import AssertionOutcome, TestOutcome, TestReport
from policy.values import STRING, Value, quoted

Cell = tuple[str, str | None]  # type and id; no id is every value of the type


def run(program: Program, fail_fast: bool = False) -> TestReport:
    """What came of every test; with `fail_fast`, of those up to the first failure."""
    session = FactsAlone.of_signatures(program, signatures_of(program))
    outcomes: list[TestOutcome] = []
    for test in program.tests:
        outcomes.append(_outcome(session, test, fail_fast))
        if fail_fast and outcomes[-1].failures:
            break
    return TestReport(tuple(outcomes))


def signatures_of(program: Program) -> frozenset:
    """Of all facts in the tests: with these, a question has the same shape in every test."""
    return frozenset(fact_of_atom(atom).signature for test in program.tests for atom in test.facts)


def _outcome(session: FactsAlone, test: Test, fail_fast: bool) -> TestOutcome:
    found: list[AssertionOutcome] = []
    sitting = _Sitting(session.over(test.facts), _groups(test.assertions), {})
    for assertion in test.assertions:
        message = _message(sitting, assertion)
        line, _ = session.program.source.position(assertion.span.start)
        found.append(AssertionOutcome(assertion.text, line, not message, message))
        if fail_fast and message:
            break
    return TestOutcome(test.name, len(test.assertions), tuple(found))


# ---- one assertion -----------------------------------------------------------------------------------------------


def _message(sitting: _Sitting, assertion: Assertion) -> str:
    """Why the assertion fails; nothing if it passes."""
    try:
        if assertion.iff_values is not None:
            return _listed(sitting, assertion)
        held = sitting.holds(assertion)
        return "" if held == assertion.expected else _expected(assertion, held)
    except TestsTooSlow:
        raise
    except AuthzError as refusal:
        return refusal.message


def _expected(assertion: Assertion, held: bool) -> str:
    if assertion.variable_type is None:
        return f"expected {_truth(assertion.expected)}, got {_truth(held)}"
    return "expected some value, got nothing" if assertion.expected else "expected nothing, got some value"


def _truth(held: bool) -> str:
    return "true" if held else "false"


def _listed(sitting: _Sitting, assertion: Assertion) -> str:
    """The assertion says exactly for which values of its variable it holds."""
    wanted: set[Cell] = {(value.type, value.id) for value in assertion.iff_values or ()}
    if assertion.iff_negated:
        wanted = declared_names(sitting.session.program, assertion) - wanted
    try:
        found = sitting.values(assertion)
        got = _enumerated(found)
    except CannotEnumerate:
        found, got = None, "every value but some"
    if (found == wanted) == assertion.expected:
        return ""
    return f"expected {'' if assertion.expected else 'anything but '}{_enumerated(wanted)}, got {got}"


def _enumerated(cells: Iterable[Cell]) -> str:
    shown = [_shown(*cell) for cell in sorted(cells, key=lambda cell: (cell[0], cell[1] is not None, cell[1] or ""))]
    if len(shown) > 12:
        shown = [*shown[:11], f"{len(shown) - 11} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown) or "nothing"


def _shown(type_name: str, text: str | None) -> str:
    if text is None:
        return f"every {type_name}"
    return quoted(text) if type_name == STRING else str(Value(type_name, text))


def declared_names(program: Program, assertion: Assertion) -> set[Cell]:
    """What `not in` leaves out of: the names that the blocks declare for the variable's place."""
    predicate, args = assertion.atom.predicate, assertion.atom.args
    found: Iterable[str] | None = None
    if len(args) > 1 and isinstance(args[1], Var) and assertion.variable_type == STRING:
        found = _names_of(program, predicate, args)
    if found is None:
        raise NoNamesDeclared
    return {(STRING, name) for name in found}


def _names_of(program: Program, predicate: str, args: tuple) -> Iterable[str] | None:
    if len(args) == 2:
        return {"has_role": program.global_roles}.get(predicate) or _global_permissions(program, predicate)
    owner = args[0] if predicate == "has_relation" else args[2]
    block = program.types.get(owner.type)
    if block is None or len(args) != 3:
        return None
    names = {"has_role": block.roles, "has_relation": block.relations}
    return block.permissions if predicate in ("allow", "has_permission") else names.get(predicate)


def _global_permissions(program: Program, predicate: str) -> Iterable[str] | None:
    return program.global_permissions if predicate in ("allow", "has_permission") else None


# ---- questions -----------------------------------------------------------------------------------------------------


Group = tuple[str, int, tuple[Value | None, ...], str]  # predicate, the place that differs, the rest, the place's type


@dataclass
class _Sitting:
    """One test's facts, and the answers had so far."""

    session: FactsAlone
    groups: dict[Group, dict[str, None]]
    answers: dict[Group, set[str | None]]

    def holds(self, assertion: Assertion) -> bool:
        if assertion.variable_type is not None or not assertion.atom.args:
            return any(self.session.holds(each) for each in self._questions(assertion))
        group, text = _group(assertion)
        if group not in self.answers:
            question = _group_question(group, tuple(self.groups[group]))
            self.answers[group] = {row[0] for row in self.session.answers(question)}
        return text in self.answers[group]

    def values(self, assertion: Assertion) -> set[Cell]:
        """What the variable can be."""
        found: set[Cell] = set()
        for question in self._questions(assertion):
            asked = question._replace(outs=("variable",))
            kind = question.variables["variable"].type
            found.update((kind, row[0]) for row in self.session.answers(asked))
        return found

    def _questions(self, assertion: Assertion) -> list[Question]:
        """One for each type that the variable can have."""
        if assertion.variable_type is None:
            return [_question(assertion, "")]
        types = self.session.program.subtypes.get(assertion.variable_type, frozenset())
        return [_question(assertion, name) for name in sorted(types)]


def _question(assertion: Assertion, variable_type: str) -> Question:
    variables, names = {}, []
    for index, arg in enumerate(assertion.atom.args):
        name = "variable" if isinstance(arg, Var) else f"argument{index}"
        variables[name] = Asked(arg.type, (arg.id,)) if isinstance(arg, Value) else Asked(variable_type)
        names.append(name)
    return Question(((assertion.atom.predicate, tuple(names)),), variables)


def _groups(assertions: Iterable[Assertion]) -> dict[Group, dict[str, None]]:
    groups: dict[Group, dict[str, None]] = {}
    for assertion in assertions:
        if assertion.variable_type is None and assertion.atom.args:
            group, text = _group(assertion)
            groups.setdefault(group, {})[text] = None
    return groups


def _group(assertion: Assertion) -> tuple[Group, str]:
    """The assertion without its last entity, and that entity's id."""
    args = [arg for arg in assertion.atom.args if isinstance(arg, Value)]
    assert len(args) == len(assertion.atom.args), "an assertion without a variable has values alone"
    place = max(range(len(args)), key=lambda index: (args[index].type != STRING, index))
    rest = tuple(None if index == place else arg for index, arg in enumerate(args))
    return (assertion.atom.predicate, place, rest, args[place].type), args[place].id


def _group_question(group: Group, texts: tuple[str, ...]) -> Question:
    predicate, place, rest, type_name = group
    names = tuple(f"argument{index}" for index in range(len(rest)))
    variables = {
        name: Asked(type_name, texts) if arg is None else Asked(arg.type, (arg.id,)) for name, arg in zip(names, rest)
    }
    return Question(((predicate, names),), variables, (names[place],))
