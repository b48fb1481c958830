"""The patterns that real policies use: every one compiles, and its rules mean what its own tests say."""

from pathlib import Path

import pytest

from policy.language import parse
from policy.language.source import Source
from policy.rules import compile_policy
from policy.rules.program import Assertion, Program, Var
from policy.values import STRING, Value
from tests.policy.program_clauses import clauses_of
from tests.reference import Row, World, fixpoint, unmentioned

PATTERNS = sorted((Path(__file__).parent.parent / "policies").glob("*.polar"))
NOW = 1_700_000_000


def rows_of(assertion: Assertion, model, program: Program) -> set[Row]:
    rows = model.get((assertion.atom.predicate, len(assertion.atom.args)), set())
    types = program.subtypes.get(assertion.variable_type or "", frozenset())
    fits = [(lambda v: v.type in types) if isinstance(arg, Var) else arg.__eq__ for arg in assertion.atom.args]
    return {row for row in rows if all(fit(value) for fit, value in zip(fits, row, strict=True))}


def holds(assertion: Assertion, model, program: Program) -> bool:
    rows = rows_of(assertion, model, program)
    if assertion.iff_values is None:
        return bool(rows) == assertion.expected
    position = next(i for i, arg in enumerate(assertion.atom.args) if isinstance(arg, Var))
    found, listed = {row[position] for row in rows}, set(assertion.iff_values)
    if any(value == unmentioned(value.type) for value in found):
        return not assertion.expected
    if assertion.iff_negated:
        listed = permissions_of(assertion, program) - listed
    return (found == listed) == assertion.expected


def permissions_of(assertion: Assertion, program: Program) -> set[Value]:
    """The names that the slot of an action could hold."""
    return {Value(STRING, name) for name in program.types[assertion.atom.args[-1].type].permissions}


@pytest.mark.parametrize("path", PATTERNS, ids=lambda path: path.stem)
def test_a_pattern_compiles_and_decides_what_its_tests_say(path):
    source = Source(path.read_text(), path.name)
    policy = parse(source)
    program = compile_policy(policy, source)
    assert program.tests and not program.warnings
    for test in program.tests:
        facts = [(fact.predicate, fact.args) for fact in test.facts]
        terms = [term for a in test.assertions for term in (*a.atom.args, *(a.iff_values or ()))]
        asked = [term for term in terms if isinstance(term, Value)]
        model = fixpoint(clauses_of(program), facts, World.of(policy, facts, asked, NOW))
        assert [a.text for a in test.assertions if not holds(a, model, program)] == [], test.name
