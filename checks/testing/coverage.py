"""Which rules the tests of a policy exercise.

A rule is exercised if, over the facts of some test, its body holds for values that the test mentions, or for names of
the policy. If a rule that is not exercised were removed, or never worked, no test would fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from checks.asking.deadline import check, shortened
from checks.asking.facts_alone import FactsAlone
from checks.asking.question import Asked, Question
from checks.testing.policy_tests import signatures_of
from policy.errors import AuthzError, Unavailable
from policy.figures import Coverage
from policy.language.source import Span
from policy.rules.program import Atom, Program, Rule, Test, Var
from policy.values import STRING, Value

_IdsByType = dict[str, tuple[str, ...]]


def measured(program: Program, seconds: float) -> Coverage | None:
    """Return the coverage of the policy's tests; None if that takes too long, or a rule cannot be asked for."""
    if not program.tests:
        return Coverage(len(program.written), tuple(uncovered(program, frozenset())))
    try:
        with shortened(seconds):
            return Coverage(len(program.written), tuple(uncovered(program, covered(program))))
    except (AuthzError, Unavailable):
        return None


def covered(program: Program) -> frozenset[Span]:
    """Return the spans of the rules that some test exercises.

    Each rule is asked for by a predicate of its own:

        has_role(u, "reader", d) if owns(u, d)   ->   rule 3(u, d) if owns(u, d)
    """
    rules = (rule for alternatives in program.written.values() for rule in alternatives)
    left = {f"rule {index}": rule for index, rule in enumerate(rules)}  # no name of a policy has a space
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
    """Yield a question for each typing of the rule's head: whether its body holds for some of the mentioned values."""
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
