"""The tests of a policy: expand their fixtures, check their facts and read their assertions.

    test fixture team { has_role(User{"ann"}, "owner", Doc{"d"}); }         a test with one fact
    test "owners read" { setup { fixture team; } assert ...; }        ->    and one assertion

The parser has already made sure that facts are ground, and that an assertion has at most one variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from policy.language import ast
from policy.language.nodes import shown
from policy.language.source import Source
from policy.rules.components import reachable
from policy.rules.declarations import Problems, Vocabulary, did_you_mean
from policy.rules.flatten import PredicateKey
from policy.rules.program import Assertion, Atom, Test, Types, Var
from policy.values import Value

Accepted = Mapping[PredicateKey, tuple[tuple[Types, ...], ...]]
MAX_FACTS = 100_000  # of all tests together: nested fixtures multiply


def tests_of(
    policy: ast.Policy, source: Source, accepted: Accepted, known: Vocabulary, problems: Problems
) -> tuple[Test, ...]:
    tests = [item for item in policy.items if isinstance(item, ast.Test)]
    _check_unique_names(tests, problems)
    fixtures = _fixtures(policy, problems)
    facts = {name: _own_facts(fixture.facts, accepted, known, problems) for name, fixture in fixtures.items()}
    room = MAX_FACTS
    found = []
    for test in tests:
        own = _own_facts(test.setup, accepted, known, problems)
        used = _used_fixtures(test, fixtures)
        room -= len(own) + sum(len(facts[name]) for name in used)
        if room < 0:
            hint = "share fewer fixtures, or split the policy's tests"
            problems.error(test.span, f"the tests have more than {MAX_FACTS} facts in all", hint)
            break
        own |= {fact: None for name in used for fact in facts[name]}
        found.append(_test(test, tuple(own), source, known, problems))
    return tuple(found)


def _test(test: ast.Test, facts: tuple[Atom, ...], source: Source, known: Vocabulary, problems: Problems) -> Test:
    assertions = tuple([_assertion(written, source, known, problems) for written in test.assertions])
    return Test(test.name.text, facts, assertions, test.span)


def _check_unique_names(tests: list[ast.Test], problems: Problems) -> None:
    seen: set[str] = set()
    for test in tests:
        if test.name.text in seen:
            problems.error(
                test.name.span, f"there is another test named {shown(test.name.text)}", "test names must be unique"
            )
        seen.add(test.name.text)


# ---- fixtures and facts -------------------------------------------------------------------------------


def _fixtures(policy: ast.Policy, problems: Problems) -> dict[str, ast.Fixture]:
    found: dict[str, ast.Fixture] = {}
    for item in policy.items:
        if isinstance(item, ast.Fixture):
            if item.name.text in found:
                problems.error(
                    item.name.span, f"there is another fixture {shown(item.name.text)}", "rename one of them"
                )
            found.setdefault(item.name.text, item)
    for item in policy.items:
        if isinstance(item, ast.Fixture | ast.Test):
            _check_uses(item, found, problems)
    _check_cycles(found, problems)
    return found


def _uses(item: ast.Fixture | ast.Test) -> list[ast.FixtureUse]:
    facts = item.facts if isinstance(item, ast.Fixture) else item.setup
    return [fact for fact in facts if isinstance(fact, ast.FixtureUse)]


def _check_uses(item: ast.Fixture | ast.Test, fixtures: Mapping[str, ast.Fixture], problems: Problems) -> None:
    for use in _uses(item):
        name = use.name.text
        if name not in fixtures:
            hint = did_you_mean(name, fixtures) or f"write `test fixture {name} {{ ... }}`"
            problems.error(use.name.span, f"there is no fixture {shown(name)}", hint)


def _check_cycles(fixtures: Mapping[str, ast.Fixture], problems: Problems) -> None:
    done: set[str] = set()
    for root in fixtures:
        path = {} if root in done else {root: iter(_uses(fixtures[root]))}
        while path:
            name, uses = next(reversed(path.items()))
            use = next((use for use in uses if use.name.text in fixtures and use.name.text not in done), None)
            if use is None:
                path.pop(name)
                done.add(name)
            elif use.name.text in path:
                message = f"the fixture {shown(use.name.text)} includes itself"
                problems.error(use.span, message, "remove one of the uses")
            else:
                path[use.name.text] = iter(_uses(fixtures[use.name.text]))


def _used_fixtures(test: ast.Test, fixtures: Mapping[str, ast.Fixture]) -> list[str]:
    """Return the fixtures that the test's setup uses, directly or through other fixtures."""

    def used(item: ast.Fixture | ast.Test) -> list[str]:
        return [use.name.text for use in _uses(item) if use.name.text in fixtures]

    return reachable(used(test), lambda name: used(fixtures[name]))


def _own_facts(
    items: Iterable[ast.Call | ast.FixtureUse], accepted: Accepted, known: Vocabulary, problems: Problems
) -> dict[Atom, None]:
    calls = (item for item in items if isinstance(item, ast.Call))
    return dict.fromkeys(_fact(call, accepted, known, problems) for call in calls)


def _fact(call: ast.Call, accepted: Accepted, known: Vocabulary, problems: Problems) -> Atom:
    literals = [arg for arg in call.args if isinstance(arg, ast.Literal)]
    assert len(literals) == len(call.args)
    for literal in literals:
        known.check_literal(literal, problems)
    args = tuple([literal.value for literal in literals])
    if all(value.type in known.bits for value in args):
        _check_accepted(call, args, accepted, known, problems)
    return Atom(call.predicate.text, args)


def _check_accepted(
    call: ast.Call, args: tuple[Value, ...], accepted: Accepted, known: Vocabulary, problems: Problems
) -> None:
    name, span = call.predicate.text, call.predicate.span
    patterns = accepted.get((name, len(args)))
    if patterns is None:
        arities = sorted(arity for other, arity in accepted if other == name)
        if arities:
            message = f"{shown(name)} does not have {len(args)} argument{'s' * (len(args) != 1)}"
            problems.error(span, message, f"the policy uses it with {' or '.join(map(str, arities))}")
        else:
            hint = did_you_mean(name, {other for other, _ in accepted}) or f"`declare {name}(...);` permits such facts"
            problems.error(span, f"{shown(name)} is not used in policy", hint)
    elif not any(all(value.type in types for value, types in zip(args, p, strict=True)) for p in patterns):
        types = ", ".join(value.type for value in args)
        hint = f"it uses {' and '.join(shown(describe_pattern(name, p, known)) for p in patterns[:3])}"
        problems.error(call.span, f"{shown(f'{name}({types})')} is not used in policy", hint)


def describe_pattern(predicate: str, pattern: tuple[Types, ...], known: Vocabulary) -> str:
    """Return a pattern of facts as messages show it: `has_role(Actor, String, Repo or Org)`."""
    names = {known.types_of(mask): name for name, mask in reversed([*known.masks.items()])}
    return f"{predicate}({', '.join(names.get(types) or _either(types, known) for types in pattern)})"


def _either(types: Types, known: Vocabulary) -> str:
    if len(types) == len(known.names):
        return "_"
    first = sorted(types)[:3]
    return " or ".join([*first, "others"] if len(types) > 3 else first)


# ---- assertions ------------------------------------------------------------------------------------------


def _assertion(written: ast.Assertion, source: Source, known: Vocabulary, problems: Problems) -> Assertion:
    variable_type = next((arg.type.text for arg in written.args if isinstance(arg, ast.Parameter)), None)
    atom = Atom(written.predicate.text, tuple([_argument(arg, known, problems) for arg in written.args]))
    text = source.text[written.span.start : written.span.end]
    is_negated = bool(written.iff and written.iff.negated)
    values = None
    if written.iff:
        for literal in written.iff.values:
            known.check_literal(literal, problems)
        values = tuple(dict.fromkeys(literal.value for literal in written.iff.values))
    return Assertion(written.expected, atom, variable_type, is_negated, values, text, written.span)


def _argument(arg: ast.Literal | ast.Parameter, known: Vocabulary, problems: Problems) -> Value | Var:
    if isinstance(arg, ast.Parameter):
        known.mask_of(arg.type, problems)
        return Var(arg.variable.name)
    known.check_literal(arg, problems)
    return arg.value
