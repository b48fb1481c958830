"""Passes over rules held against what clauses mean: what a pattern answers before a pass, it answers after it.

The first pass is held against the rules themselves, said as clauses without types.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from checks.engine.rules.clauses import ClausesOf, Const, Other, Pattern, bounded, mentioned, pattern_of
from checks.engine.rules.ruleset import Passes
from policy.language.source import Source
from policy.rules import compile_source
from policy.rules.components import reachable
from policy.rules.flatten import terms_of
from policy.rules.program import Member, Program, Signature
from policy.values import BOOLEAN, INTEGER, STRING, Value
from tests import reference
from tests.checks.in_memory import NOW
from tests.properties.random_policies import Case
from tests.reference_rules import Meaning, Row, World, well_founded
from tests.untyped_rules import Untyped, signature, text_of, untyped

PATIENCE = 1.0  # seconds of processor time for the clauses of a case
OTHER = Other("action")  # a name that no rule mentions

Facts = Iterable[tuple[str, tuple[Value, ...]]]
Values = Mapping[str, tuple[Value, ...]]  # by type


@dataclass(frozen=True)
class Held:
    """A pattern's rows before and after a pass."""

    case: Case
    pattern: Pattern
    name: str  # of the pass
    before: set[Row]
    after: set[Row]
    has_changed: bool  # the clauses of something that the pattern leads to

    @property
    def is_wrong(self) -> bool:
        return self.before != self.after

    def __str__(self) -> str:
        facts = [f"  {predicate}({', '.join(map(str, row))})" for predicate, row in self.case.facts]
        lost, added = self.before - self.after, self.after - self.before
        return "\n".join([self.case.policy, *facts, f"{self.name} of {self.pattern} loses {lost}, adds {added}"])


def held(case: Case, rng: Random) -> Iterator[Held]:
    """Each pass, for some of the case's patterns."""
    program = with_fewer_facts(compile_source(Source(case.policy)), rng)
    facts = accepted(program, case.facts)
    values = values_of(program, facts)
    world, patterns = world_of(facts, values), patterns_of(case, program, rng)
    # For every other program, passes know of which signatures there are facts.
    stored = frozenset(world.facts)
    passes = Passes.over(program, stored.__contains__) if rng.random() < 0.5 else Passes.over(program)
    meanings = {name: Meaning(clauses, world) for name, clauses in named(passes).items()}
    for pattern in patterns:
        with bounded(PATIENCE):
            said = rows_of_rules(program, facts, values, pattern)
            specialised = meanings["specialised"].rows(pattern)
            yield Held(case, pattern, "specialised", said, specialised, has_changed=True)
            yield from _held(case, pattern, meanings)


def _held(case: Case, pattern: Pattern, meanings: dict[str, Meaning]) -> Iterator[Held]:
    """Each pass after the first. What it does not change, for the pattern and all that it leads to, it keeps."""
    (_, meaning), *rest = meanings.items()
    before = meaning.rows(pattern)
    for name, more in rest:
        is_other = has_changed(meaning.clauses, more.clauses, pattern)
        after = more.rows(pattern) if is_other else before
        yield Held(case, pattern, name, before, after, is_other)
        meaning, before = more, after


def named(passes: Passes) -> dict[str, ClausesOf]:
    """The clauses after each pass, in order, and those that follow paths from their ends."""
    found: dict[str, ClausesOf] = {name: cache(clauses) for name, clauses in vars(passes).items()}
    return found | {"separated, backward": lambda pattern: passes.separated(pattern, backward=True)}


def has_changed(before: ClausesOf, after: ClausesOf, start: Pattern) -> bool:
    return any(each.subset or before(each) != after(each) for each in patterns_from(start, after))


def patterns_from(start: Pattern, clauses: ClausesOf) -> list[Pattern]:
    """The pattern, and all that its clauses call or deny."""

    def following(pattern: Pattern) -> list[Pattern]:
        return [pattern_of(call) for clause in clauses(pattern) for call in mentioned(clause.body)]

    return reachable((start,), following)


# ---- a case's world and patterns --------------------------------------------------------------------------------


def with_fewer_facts(program: Program, rng: Random) -> Program:
    """Every other program accepts no facts of some kinds, so that rules about those can never hold."""
    if rng.random() < 0.5:
        return program
    kept = {key: tuple(each for each in found if rng.random() < 0.7) for key, found in program.accepted.items()}
    return replace(program, accepted={key: found for key, found in kept.items() if found})


def accepted(program: Program, facts: Facts) -> list[tuple[str, tuple[Value, ...]]]:
    return [(name, row) for name, row in facts if program.accepts(name, tuple(value.type for value in row))]


def values_of(program: Program, facts: Facts, asked: Iterable[Value] = ()) -> Values:
    """All values that facts and rules mention or that are asked about, and for each type one more; by type."""
    known = {Value(BOOLEAN, "true"), Value(BOOLEAN, "false"), Value(INTEGER, str(NOW)), *asked}
    known.update(value for _, row in facts for value in row)
    for rule in program.rules:
        for literal in (rule.head, *rule.body):
            terms = literal.values if isinstance(literal, Member) else terms_of(literal)
            known.update(term for term in terms if isinstance(term, Value))
    concrete = frozenset().union(*program.subtypes.values())
    known.update(reference.unmentioned(name) for name in concrete if name != BOOLEAN)
    found = defaultdict(list)
    for value in sorted(known):
        found[value.type].append(value)
    return {name: tuple(values) for name, values in found.items()}


def world_of(facts: Facts, values: Values) -> World:
    """For clauses that know the type of everything by its place."""
    rows = defaultdict(list)
    for predicate, row in facts:
        rows[Signature(predicate, tuple(value.type for value in row))].append(tuple(value.id for value in row))
    slots = {"now": str(NOW), OTHER.slot: reference.UNMENTIONED}
    return World(rows, {name: tuple(value.id for value in each) for name, each in values.items()}, slots)


def rows_of_rules(program: Program, facts: Facts, values: Values, pattern: Pattern) -> set[Row]:
    """What the rules say of the pattern."""
    rows = defaultdict(list)
    for predicate, row in facts:
        rows[signature((predicate, len(row)))].append(tuple(map(text_of, row)))
    rules = cache(Untyped(program, values, Value(INTEGER, str(NOW))).__call__)
    found = well_founded(rules, World(rows, {}, {}), untyped((pattern.predicate, len(pattern.types))))
    asked = zip(pattern.types, pattern.consts)
    fitting = [{text_of(each): each.id for each in values[kind] if _fits(each, const)} for kind, const in asked]
    return {
        tuple(own[text] for own, text in zip(fitting, row))
        for row in found
        if all(text in own for own, text in zip(fitting, row))
    }


def _fits(value: Value, const: Const | Other | None) -> bool:
    wanted = const.id if isinstance(const, Const) else reference.UNMENTIONED
    return const is None or value.id == wanted


def patterns_of(case: Case, program: Program, rng: Random) -> list[Pattern]:
    """Of what rules may make true: two goals, their names given or asked for."""
    found = {}
    for predicate, row in rng.sample(case.goals, min(2, len(case.goals))):
        is_open = rng.random() < 0.4
        names = [Const(each.id) if each.id in program.names else OTHER for each in row]
        consts = tuple(None if is_open or each.type != STRING else name for each, name in zip(row, names))
        found[Pattern(predicate, tuple(each.type for each in row), consts)] = None
    return list(found)
