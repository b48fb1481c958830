"""Convert tuples to facts, and tests of the original to tests of the policy."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256

from authz_project.importers import ir
from authz_project.importers.cel import ID_LIMITS, NoEquivalent, described, is_id, parameters_of, sums, worked_out
from authz_project.importers.layout import PolicyLayout, RelationKey, RelationKind, restrictive_relations
from facts.wire import Fact
from policy.core.clock import microseconds_of
from policy.language import ast
from policy.values import STRING, Value

# ---- tuples as facts ----------------------------------------------------------------------------------------------
# | tuple | fact |
# |---|---|
# | `document:plan#viewer@user:ann` | `has_role(user:ann, "viewer", document:plan)` |
# | `document:plan#parent@folder:top`, if arrows follow it | `has_relation(document:plan, "parent", folder:top)` |
# | `document:plan#viewer@group:eng#member` | `has_relation(document:plan, "viewer_group", group:eng)` |
# | `document:plan#viewer@user:*` | `is_public(document:plan, "viewer")` |
# | … with in_hours, from 9 | `has_role_if(…, in_hours:"from=9")`, and `parameter(in_hours:"from=9", "from", 9)` |

BY_REQUEST = "by request"  # the `when` of a tuple that binds no values
LONGEST_WHEN = 200  # bytes
_PLAIN = re.compile(r"[\w.:/+-]+")
ANYBODY = "anybody"  # stands for `user:*` in checks


@dataclass(frozen=True)
class CarriedFacts:
    layout: PolicyLayout

    def of_all(self, tuples: Iterable[ir.Tuple], report: ir.ImportReport) -> list[Fact]:
        """Return the facts for all tuples, without duplicates. Report tuples that are expired or have no equivalent."""
        found: dict[Fact, Fact] = {}
        now = datetime.now(UTC)
        for each in tuples:
            if each.expiry is not None and each.expiry <= now:
                report.add(ir.ModelKind.EXPIRED, each.place, f"tuple {each}")
                continue
            try:
                found.update({fact: fact for fact in self.of(each)})
            except NoEquivalent as reason:
                self._tell(each, reason, report)
        return [*found.values()]

    def _tell(self, tuple_: ir.Tuple, reason: NoEquivalent, report: ir.ImportReport) -> None:
        message = f"tuple {tuple_}: {reason}"
        if not reason.is_wrong and self._home(tuple_) in self._keeping:
            report.add(ir.ModelKind.NEEDED, tuple_.place, f"{message}; it may restrict access")
        else:
            report.add(ir.ModelKind.LOST, tuple_.place, message)

    @cached_property
    def _keeping(self) -> frozenset[RelationKey]:
        return restrictive_relations(self.layout.apart)

    def of(self, tuple_: ir.Tuple) -> list[Fact]:
        """Return the fact of a tuple, and those of the values that it binds. Raise NoEquivalent if there is none."""
        self._check_subject(tuple_)
        expires_at = None if tuple_.expiry is None else microseconds_of(tuple_.expiry)
        predicate, args = self._fact_parts(tuple_)
        if tuple_.condition is None:
            return [Fact(predicate, args, expires_at)]
        when, values = self._when(tuple_)
        return [Fact(f"{predicate}_if", (*args, when), expires_at), *values]

    def context(self, values: ir.ContextValues) -> list[Fact]:
        """Return the values of a request as context facts, for all conditions that use them."""
        found: dict[Fact, None] = {}
        for condition in self.layout.model.conditions:
            try:
                given = worked_out(condition, values)
            except NoEquivalent as reason:
                raise NoEquivalent(f"the request's {reason}") from None
            for name, each in given.items():
                found.update({Fact("context", (Value(STRING, name), value)): None for value in each})
        return [*found]

    # ---- subjects and objects of checks ------------------------------------------------------------------------------

    def value(self, thing: ir.Thing | ir.Who) -> Value:
        if thing.type not in self.layout.types:
            raise NoEquivalent(f"type {thing.type} does not exist", is_wrong=True)
        return Value(self.layout.types[thing.type], _id(thing.id))

    def asked(self, who: ir.Who) -> tuple[Value, list[Fact]]:
        """Return the subject of a check; for a userset, a stand-in actor and the fact that makes it a member."""
        if who.is_everybody:
            return self.value(ir.Who(who.type, ANYBODY)), []
        if who.relation is None:
            return self.value(who), []
        stand_in = Value(self.layout.userset_type, _id(str(who)))
        named = self.layout.relation_names.get((who.type, who.relation))
        if named is None:
            raise NoEquivalent(f"relation {who.type}#{who.relation} does not exist", is_wrong=True)
        if named.kind is RelationKind.RELATION:
            raise NoEquivalent(f"checks for {who.type}#{who.relation} are not supported, because it leads to objects")
        thing = self.value(ir.Who(who.type, who.id))
        return stand_in, [Fact(f"has_{named.kind.value}", (stand_in, Value(STRING, named.name), thing))]

    def question(self, who: Value, relation: str, thing: ir.Thing) -> tuple[str, tuple[Value, ...]]:
        named = self.layout.relation_names.get((thing.type, relation))
        if named is None:
            raise NoEquivalent(f"relation {thing.type}#{relation} does not exist", is_wrong=True)
        name, resource = Value(STRING, named.name), self.value(thing)
        if named.kind is RelationKind.RELATION:
            return "has_relation", (resource, name, who)
        return "allow", (who, name, resource)

    # ---- tuples ------------------------------------------------------------------------------------------------------

    def _check_subject(self, tuple_: ir.Tuple) -> None:
        """Refuse a tuple whose kind of subject the model does not allow."""
        who = tuple_.subject
        allowed = self._subjects.get((tuple_.object.type, tuple_.relation), ())
        if not allowed:
            raise NoEquivalent("the relation does not exist in the model, or cannot have tuples", is_wrong=True)
        kind = ir.Subject(who.type, who.relation, who.is_everybody, tuple_.condition, tuple_.expiry is not None)
        if kind in allowed:
            return
        traits = [*([tuple_.condition] if tuple_.condition else []), *(["expiration"] if tuple_.expiry else [])]
        with_them = f" with {' and '.join(traits)}" if traits else ""
        raise NoEquivalent(f"the model does not allow this subject{with_them}", is_wrong=True)

    @cached_property
    def _subjects(self) -> dict[RelationKey, tuple[ir.Subject, ...]]:
        return {(type_.name, each.name): each.subjects for type_, each in ir.relations_of(self.layout.apart.original)}

    def _home(self, tuple_: ir.Tuple) -> RelationKey:
        """Return the relation under which the tuple is stored."""
        is_plain = tuple_.subject.relation is None and not tuple_.subject.is_everybody
        return tuple_.object.type, self.layout.apart.home(tuple_.object.type, tuple_.relation, is_plain)

    def _fact_parts(self, tuple_: ir.Tuple) -> tuple[str, tuple[Value, ...]]:
        layout, who, thing, key = self.layout, tuple_.subject, self.value(tuple_.object), self._home(tuple_)
        if who.relation:
            name = Value(STRING, layout.userset_names[*key, who.type, who.relation])
            return "has_relation", (thing, name, self.value(ir.Who(who.type, who.id)))
        named = layout.relation_names[key]
        name = Value(STRING, named.name)
        if who.is_everybody:
            public = layout.public_types(*key)
            types = (Value(STRING, layout.types[who.type]),) if len(public) > 1 else ()
            return "is_public", (thing, name, *types)
        if named.kind is RelationKind.RELATION:
            return "has_relation", (thing, name, self.value(who))
        return "has_role", (self.value(who), name, thing)

    def _when(self, tuple_: ir.Tuple) -> tuple[Value, list[Fact]]:
        """Return the value that represents the tuple's bound values, and the facts that store them."""
        condition = self.layout.condition(str(tuple_.condition))
        given = worked_out(condition, tuple_.values)
        _check_sums(condition, {name for name, _ in tuple_.values})
        _check_clock(self.layout.clock & {name for name, _ in tuple_.values if name in given})
        known = {each.name for each in condition.parameters}
        written = " ".join(f"{name}={_short(raw)}" for name, raw in sorted(tuple_.values) if name in known)
        if len(written.encode()) > LONGEST_WHEN:
            written = sha256(written.encode()).hexdigest()
        when = Value(self.layout.conditions[condition.name], written or BY_REQUEST)
        return when, [*self._parameters(when, given)]

    def _parameters(self, when: Value, given: dict[str, list[Value]]) -> Iterator[Fact]:
        for name, values in given.items():
            for value in values:
                yield Fact("parameter", (when, Value(STRING, name), value))


def _check_sums(condition: ir.ModelCondition, given: set[str]) -> None:
    """Refuse a sum of values given partly by the tuple and partly by the request."""
    for total in sums(condition.test):
        parts = parameters_of(total)
        named = [name for name in parts if name in given]
        if named and len(named) < len(parts):
            missing = ", ".join(name for name in parts if name not in given)
            raise NoEquivalent(f"`{described(total)}` is computed from the tuple, which lacks {missing}")


def _check_clock(given: frozenset[str]) -> None:
    """Refuse a tuple that binds a time for which the server's clock would be used instead."""
    if given:
        raise NoEquivalent(f"it sets {', '.join(sorted(given))}, which the service's clock replaces (--clock)")


def _short(raw: object) -> str:
    """Return a value as it appears in an id: a text is quoted unless it is unambiguous."""
    if isinstance(raw, str) and _PLAIN.fullmatch(raw):
        return raw
    return json.dumps(raw, separators=(",", ":"), ensure_ascii=False, default=str)


def _id(text: str) -> str:
    if not is_id(text):
        raise NoEquivalent(f"an id {ID_LIMITS}")
    return text


# ---- duplicate tuples with different conditions, values or expiries -----------------------------------------------


def check_duplicates(imported: ir.Imported) -> None:
    """Raise ImportRejected with every tuple that contradicts another: as facts, both would apply."""
    found = [*_faults(imported.tuples)]
    for scenario in imported.scenarios:
        found += _faults((*imported.tuples, *scenario.tuples))
    ir.refuse(found)


def _faults(tuples: Iterable[ir.Tuple]) -> Iterator[ir.Fault]:
    known: dict[tuple[object, ...], ir.Tuple] = {}
    for each in tuples:
        first = known.setdefault((each.object, each.relation, each.subject), each)
        if _bound(each) != _bound(first):
            where = f", first at {first.place}" if any(first.place) else ""
            message = f"tuple {each} occurs twice, with different conditions, values or expiries{where}"
            yield ir.Fault(each.place, message)


def _bound(tuple_: ir.Tuple) -> tuple[object, ...]:
    values = sorted((name, type(value).__name__, repr(value)) for name, value in tuple_.values)
    return tuple_.condition, values, tuple_.expiry


TUPLES = "tuples"  # the fixture that all tests share
MOST_IN_TESTS = 5_000  # facts


@dataclass(frozen=True)
class WrittenTests:
    facts: tuple[Fact, ...]  # common to all tests
    tests: tuple[tuple[ast.Test, ir.Place], ...] = ()  # with their places in the original
    assertions: int = 0  # number of assertions of the original in them

    def mentions(self, type_name: str) -> bool:
        """Return whether an assertion is about objects of a type."""
        asserted = (each for test, _ in self.tests for each in test.assertions if isinstance(each, ast.Assertion))
        args = (arg for each in asserted for arg in each.args)
        return any(type_name == (arg.type.text if isinstance(arg, ast.Parameter) else arg.value.type) for arg in args)

    @property
    def items(self) -> list[ast.Item]:
        if not self.tests:
            return []
        fixture = [ast.Fixture(ast.Name(TUPLES), tuple(map(_stated, self.facts)))] if self.facts else []
        return [*fixture, *(test for test, _ in self.tests)]


class ScenarioWriter:
    """Converts tuples to facts, and scenarios to tests."""

    def __init__(self, imported: ir.Imported, layout: PolicyLayout, report: ir.ImportReport):
        self.imported, self.layout, self.report = imported, layout, report
        self.facts = CarriedFacts(layout)
        self.names: set[str] = set()
        self.carried = 0
        self.tuples: tuple[ir.Tuple, ...] = ()
        self.stored = self.facts.of_all(imported.tuples, report)

    def written(self) -> WrittenTests:
        scenarios = self.imported.scenarios
        if scenarios and len(self.stored) > MOST_IN_TESTS:
            message = f"tests with more than {MOST_IN_TESTS:,} facts are not supported"
            self.report.add(ir.ModelKind.LOST, scenarios[0].place, f"{len(scenarios)} tests: {message}")
            return WrittenTests(tuple(self.stored))
        tests = tuple((test, scenario.place) for scenario in scenarios for test in self._tests(scenario))
        return WrittenTests(tuple(self.stored), tests, self.carried)

    def _tests(self, scenario: ir.Scenario) -> Iterator[ast.Test]:
        own = self.facts.of_all(scenario.tuples, self.report)
        self.tuples = (*self.imported.tuples, *scenario.tuples)
        groups: dict[tuple[Fact, ...], dict[ast.Assertion, None]] = {}  # assertions by the facts they are based on
        for each in scenario.expectations:
            try:
                facts, assertions = self._asserted(each)
            except NoEquivalent as reason:
                place = each.place if any(each.place) else scenario.place
                self.report.add(ir.ModelKind.LOST, place, f"test `{scenario.name}`: {reason}")
                continue
            self.carried += 1
            groups.setdefault(tuple(sorted(facts, key=str)), {}).update(dict.fromkeys(assertions))
        for given, asserted in groups.items():
            context = ", ".join(" ".join(arg.id for arg in fact.args) for fact in given if fact.predicate == "context")
            name = f"{scenario.name}: {context}" if context else scenario.name
            if asserted:
                uses = [ast.FixtureUse(ast.Name(TUPLES))] if self.stored else []
                setup: tuple[ast.Call | ast.FixtureUse, ...] = (*uses, *map(_stated, dict.fromkeys((*own, *given))))
                yield ast.Test(ast.String(self._unused(name[:200])), setup, tuple(asserted))

    def _unused(self, name: str) -> str:
        found, number = name, 1
        while found in self.names:
            number += 1
            found = f"{name} ({number})"
        self.names.add(found)
        return found

    # ---- expectations ------------------------------------------------------------------------------------------------

    def _asserted(self, asked: ir.ModelExpectation) -> tuple[list[Fact], list[ast.Assertion]]:
        """Return the facts that an expectation adds to the setup, and its assertions."""
        context = self.facts.context(asked.context)
        match asked:
            case ir.ExpectedCheck(subject, relation, thing, expected):
                who, stand_in = self.facts.asked(subject)
                return [*context, *stand_in], [_assertion(expected, *self.facts.question(who, relation, thing))]
            case ir.ObjectList(subject, relation, type_name, expected):
                who, stand_in = self.facts.asked(subject)
                predicate, args = self.facts.question(who, relation, ir.Thing(type_name, "any"))
                listed = [self.facts.value(ir.Thing(type_name, each)) for each in expected]
                place = 0 if predicate == "has_relation" else 2
                return [*context, *stand_in], [_list_assertion(predicate, args, place, listed)]
            case ir.SubjectList():
                return self._subjects(asked, context)

    def _subjects(self, asked: ir.SubjectList, context: list[Fact]) -> tuple[list[Fact], list[ast.Assertion]]:
        """Assert the list of subjects; if `user:*` may grant (which has no list), check each known subject instead."""
        if asked.type not in self.layout.types:
            raise NoEquivalent(f"type {asked.type} does not exist", is_wrong=True)
        is_plain = asked.subject_relation is None
        any_one = Value(self.layout.types[asked.type] if is_plain else self.layout.userset_type, "any")
        predicate, args = self.facts.question(any_one, asked.relation, asked.object)
        place = args.index(any_one)
        if not is_plain or not any(self.layout.public_types(*key) for key in self.layout.relations):
            stand_ins = [fact for who in self._stand_ins(asked) for fact in self.facts.asked(who)[1]]
            values = [self.facts.asked(who)[0] for who in asked.expected]
            return [*context, *stand_ins], [_list_assertion(predicate, args, place, values)]

        def asserted(holds: bool, name: str) -> ast.Assertion:
            who = self.facts.value(ir.Who(asked.type, name))
            return _assertion(holds, predicate, (*args[:place], who, *args[place + 1 :]))

        everybody = any(each.is_everybody for each in asked.expected)
        expected = {each.id for each in asked.expected if not each.is_everybody}
        known = {each.subject.id for each in self.tuples if each.subject.type == asked.type} - {"*"}
        named = sorted(expected | (set() if everybody else known))
        return context, [asserted(everybody, ANYBODY), *(asserted(name in expected, name) for name in named)]

    def _stand_ins(self, asked: ir.SubjectList) -> list[ir.Who]:
        """Return all usersets of the requested kind, for objects that appear in tuples; none if it is a plain one."""
        if asked.subject_relation is None:
            return []
        ids = {each.object.id for each in self.tuples if each.object.type == asked.type}
        ids |= {each.subject.id for each in self.tuples if each.subject.type == asked.type} - {"*"}
        ids |= {each.id for each in asked.expected} | ({asked.object.id} if asked.object.type == asked.type else set())
        return [ir.Who(asked.type, each, asked.subject_relation) for each in sorted(ids)]


def _stated(fact: Fact) -> ast.Call:
    return ast.Call(ast.Name(fact.predicate), tuple(map(ast.Literal, fact.args)))


def _assertion(expected: bool, predicate: str, args: Iterable[Value]) -> ast.Assertion:
    return ast.Assertion(expected, ast.Name(predicate), tuple(map(ast.Literal, args)))


def _list_assertion(predicate: str, args: tuple[Value, ...], place: int, expected: list[Value]) -> ast.Assertion:
    """Return `assert allow(User{"ann"}, "view", document: document) iff document in […];`."""
    variable = ast.Variable("each")
    typed = ast.Parameter(variable, ast.Name(args[place].type))
    given: list[ast.Literal | ast.Parameter] = [*map(ast.Literal, args)]
    given[place] = typed
    values = tuple(map(ast.Literal, sorted(set(expected))))
    if not values:
        return ast.Assertion(False, ast.Name(predicate), tuple(given))
    clause = ast.ValuesClause(variable, False, values)
    return ast.Assertion(True, ast.Name(predicate), tuple(given), clause)
