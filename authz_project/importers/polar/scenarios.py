"""Tests of the original as tests of the policy.

A test in Polar has one setup. So a test of the original becomes several if its questions come with different request
values, or ask about different usersets: each userset is a stand-in actor, whom facts of the setup make a member.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from authz_project.importers.facts import ANYBODY, CarriedFacts, NotCarried
from authz_project.importers.model import (
    ExpectedCheck,
    Imported,
    ImportReport,
    ObjectList,
    Place,
    Scenario,
    SubjectList,
    Thing,
    Tuple,
    Who,
)
from authz_project.importers.polar.layout import PolicyLayout
from facts.wire import Fact
from policy.language import ast
from policy.values import Value

TUPLES = "tuples"  # the fixture that all tests begin with
MOST_IN_TESTS = 5_000  # facts


@dataclass(frozen=True)
class WrittenTests:
    fixture: ast.Fixture | None
    tests: tuple[ast.Test, ...]
    assertions: int  # of the original that are in them
    asks_usersets: bool
    places: tuple[Place, ...] = ()  # of the tests in the original


@dataclass
class _FactsGroup:
    """Assertions over the same facts."""

    facts: tuple[Fact, ...]
    assertions: list[ast.Assertion] = field(default_factory=list)


def written_tests(imported: Imported, layout: PolicyLayout, report: ImportReport) -> WrittenTests:
    return _ScenarioWriter(imported, layout, report).written()


class _ScenarioWriter:
    def __init__(self, imported: Imported, layout: PolicyLayout, report: ImportReport):
        self.imported, self.layout, self.report = imported, layout, report
        self.facts = CarriedFacts(layout)
        self.names: set[str] = set()
        self.carried = 0
        self.asks_usersets = False
        self.tuples: tuple[Tuple, ...] = ()
        self.stored = self.facts.of_all(imported.tuples, report)

    def written(self) -> WrittenTests:
        scenarios = self.imported.scenarios
        if scenarios and len(self.stored) > MOST_IN_TESTS:
            message = f"tests over more than {MOST_IN_TESTS:,} facts do not fit into a policy"
            self.report.skipped(scenarios[0].place, f"{len(scenarios)} tests: {message}")
            return WrittenTests(None, (), 0, False)
        tests = [(test, scenario.place) for scenario in scenarios for test in self._tests(scenario)]
        is_used = bool(tests and self.stored)
        fixture = ast.Fixture(ast.Name(TUPLES), tuple(map(_stated, self.stored))) if is_used else None
        places = tuple(place for _, place in tests)
        return WrittenTests(fixture, tuple(test for test, _ in tests), self.carried, self.asks_usersets, places)

    def _tests(self, scenario: Scenario) -> Iterator[ast.Test]:
        own = self.facts.of_all(scenario.tuples, self.report)
        self.tuples = (*self.imported.tuples, *scenario.tuples)
        groups: dict[tuple[Fact, ...], _FactsGroup] = {}
        for each in scenario.expectations:
            try:
                facts, assertions = self._asserted(each)
            except NotCarried as reason:
                place = each.place if any(each.place) else scenario.place
                self.report.skipped(place, f"a question of the test `{scenario.name}`: {reason.message}")
                continue
            self.carried += 1
            key = tuple(sorted(facts, key=str))
            group = groups.setdefault(key, _FactsGroup(key))
            group.assertions += [one for one in assertions if one not in group.assertions]
        for group in groups.values():
            if group.assertions:
                yield self._test(scenario, own, group)

    def _test(self, scenario: Scenario, own: list[Fact], group: _FactsGroup) -> ast.Test:
        uses = [ast.FixtureUse(ast.Name(TUPLES))] if self.stored else []
        setup: tuple[ast.Call | ast.FixtureUse, ...] = (*uses, *map(_stated, dict.fromkeys((*own, *group.facts))))
        given = [fact.args for fact in group.facts if fact.predicate == "context"]
        context = ", ".join(f"{name.id} {value.id}" for name, value in given)
        name = f"{scenario.name}: {context}" if context else scenario.name
        return ast.Test(ast.String(self._unused(name[:200])), setup, tuple(group.assertions))

    def _unused(self, name: str) -> str:
        found, number = name, 1
        while found in self.names:
            number += 1
            found = f"{name} ({number})"
        self.names.add(found)
        return found

    # ---- one question ------------------------------------------------------------------------------------------------

    def _asserted(self, asked: ExpectedCheck | ObjectList | SubjectList) -> tuple[list[Fact], list[ast.Assertion]]:
        """Return the facts that an expectation adds to the setup, and its assertions."""
        context = self.facts.context(asked.context)
        match asked:
            case ExpectedCheck(subject, relation, thing, expected):
                who, stand_in = self._asked(subject)
                return [*context, *stand_in], [_assertion(expected, *self.facts.question(who, relation, thing))]
            case ObjectList(subject, relation, type_name, expected):
                who, stand_in = self._asked(subject)
                listed = [Thing(type_name, each) for each in expected]
                return [*context, *stand_in], [self._objects(who, relation, type_name, listed)]
            case SubjectList():
                return self._subjects(asked, context)

    def _asked(self, who: Who) -> tuple[Value, list[Fact]]:
        value, stand_in = self.facts.asked(who)
        self.asks_usersets = self.asks_usersets or bool(stand_in)
        return value, stand_in

    def _objects(self, who: Value, relation: str, type_name: str, expected: list[Thing]) -> ast.Assertion:
        predicate, args = self.facts.question(who, relation, Thing(type_name, "any"))
        place = 0 if predicate == "has_relation" else 2
        return _list_assertion(predicate, args, place, [self.facts.value(each) for each in expected])

    def _subjects(self, asked: SubjectList, context: list[Fact]) -> tuple[list[Fact], list[ast.Assertion]]:
        if asked.subject_relation is None:
            return context, self._plain_subjects(asked)
        stand_ins = self._stand_ins(asked)
        facts = [fact for who in stand_ins for fact in self._asked(who)[1]]
        values = [self._asked(who)[0] for who in asked.expected]
        any_one = Value(self.layout.userset_type, "any")
        predicate, args = self.facts.question(any_one, asked.relation, asked.object)
        self.asks_usersets = True
        return [*context, *facts], [_list_assertion(predicate, args, args.index(any_one), values)]

    def _plain_subjects(self, asked: SubjectList) -> list[ast.Assertion]:
        """Assert the list of subjects; or each known subject by itself, if `user:*` may grant: it has no list."""
        if asked.type not in self.layout.types:
            raise NotCarried(f"there is no type {asked.type}", is_wrong=True)
        any_one = Value(self.layout.types[asked.type], "any")
        predicate, args = self.facts.question(any_one, asked.relation, asked.object)
        place = args.index(any_one)
        if not any(self.layout.public_types(*key) for key in self.layout.relations):
            return [_list_assertion(predicate, args, place, [self.facts.value(each) for each in asked.expected])]
        everybody = any(each.is_everybody for each in asked.expected)
        found = [_assertion(everybody, *self._with(predicate, args, place, self.facts.value(Who(asked.type, ANYBODY))))]
        expected = {each.id for each in asked.expected if not each.is_everybody}
        known = {each.subject.id for each in self.tuples if each.subject.type == asked.type} - {"*"}
        for name in sorted(expected | (set() if everybody else known)):
            who = self.facts.value(Who(asked.type, name))
            found.append(_assertion(name in expected, *self._with(predicate, args, place, who)))
        return found

    def _with(self, predicate: str, args: tuple[Value, ...], place: int, who: Value) -> tuple[str, tuple[Value, ...]]:
        return predicate, (*args[:place], who, *args[place + 1 :])

    def _stand_ins(self, asked: SubjectList) -> list[Who]:
        """Return all usersets of the kind that is asked for, of things that some tuple names."""
        ids = {each.object.id for each in self.tuples if each.object.type == asked.type}
        ids |= {each.subject.id for each in self.tuples if each.subject.type == asked.type} - {"*"}
        ids |= {each.id for each in asked.expected} | ({asked.object.id} if asked.object.type == asked.type else set())
        return [Who(asked.type, each, asked.subject_relation) for each in sorted(ids)]


def _stated(fact: Fact) -> ast.Call:
    return ast.Call(ast.Name(fact.predicate), tuple(map(ast.Literal, fact.args)))


def _assertion(expected: bool, predicate: str, args: Iterable[Value]) -> ast.Assertion:
    return ast.Assertion(expected, ast.Name(predicate), tuple(map(ast.Literal, args)))


def _list_assertion(predicate: str, args: tuple[Value, ...], place: int, expected: list[Value]) -> ast.Assertion:
    """Write `assert allow(User{"ann"}, "view", document: document) iff document in […];`"""
    variable = ast.Variable("each")
    typed = ast.Parameter(variable, ast.Name(args[place].type))
    given: list[ast.Literal | ast.Parameter] = [*map(ast.Literal, args)]
    given[place] = typed
    values = tuple(map(ast.Literal, sorted(set(expected))))
    if not values:
        return ast.Assertion(False, ast.Name(predicate), tuple(given))
    clause = ast.ValuesClause(variable, False, values)
    return ast.Assertion(True, ast.Name(predicate), tuple(given), clause)
