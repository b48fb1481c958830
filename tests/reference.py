"""The oracle: what a policy means, worked out by brute force over Python sets.

It reads the syntax tree only and shares nothing with the compiler: no desugaring, no normal form, no
inferred types. The world is finite: every value that the policy, the facts or the questions mention, and for each
type one that nobody mentions, which stands for all the others.

    world = World.of(policy, facts, mentioned, now)
    model = model_of(policy, facts, world)
    model["allow", 3]                                # every (actor, action, resource) that is allowed
    answers(model, world, calls, constraints)        # a question with variables
    is_sayable(rows, world)                          # False: "all but some", which is refused
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from policy.language import ast
from policy.values import ABSTRACT, BOOLEAN, INTEGER, PRIMITIVES, STRING, Value
from tests.reference_clauses import Clause, NoneSuch, call, clauses_of, declared, mentioned, names, nodes, supertypes

Row = tuple[Value, ...]
Facts = Iterable[tuple[str, Row]]
Model = Mapping[tuple[str, int], set[Row]]
Env = dict[str, Value]  # a variable that is missing may still stand for any value
UNMENTIONED = "(nobody mentions this)"
NEVER_A_NUMBER = str(2**62 + 1)  # as an Integer


# ---- the world: all values there are --------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    values: Mapping[str, tuple[Value, ...]]  # by type name, subtypes' values included
    everything: tuple[Value, ...]
    now: Value

    @classmethod
    def of(cls, policy: ast.Policy, facts: Facts, mentioned: Iterable[Value] = (), now: int = 0) -> World:
        known = {Value(BOOLEAN, "true"), Value(BOOLEAN, "false"), Value(INTEGER, str(now)), *mentioned}
        known.update(value for _, row in facts for value in row)
        known.update(node.value for node in nodes(policy) if isinstance(node, ast.Literal))
        known.update(Value(STRING, node.text) for node in nodes(policy) if isinstance(node, ast.String))
        known.update(Value(STRING, node.name) for node in nodes(policy) if isinstance(node, ast.Reference))
        blocks = declared(policy)
        # Rules may speak of types that no block declares.
        typed = [node.type.text for node in nodes(policy) if isinstance(node, ast.Matches | ast.Parameter)]
        types = dict.fromkeys((*blocks, *(name for name in typed if name not in (*PRIMITIVES, *ABSTRACT))))
        known.update(unmentioned(name) for name in (*types, STRING, INTEGER))
        names = (*types, *PRIMITIVES, *ABSTRACT)
        values = {name: tuple(sorted(v for v in known if name in supertypes(v.type, blocks))) for name in names}
        return cls(values, tuple(sorted(known)), Value(INTEGER, str(now)))

    def exactly(self, type_name: str) -> tuple[Value, ...]:
        return tuple(value for value in self.values.get(type_name, ()) if value.type == type_name)


def unmentioned(type_name: str) -> Value:
    return Value(type_name, NEVER_A_NUMBER if type_name == INTEGER else UNMENTIONED)


# ---- solutions of a formula ---------------------------------------------------------------------------------


def solutions(formula: ast.Formula, env: Env, model: Model, denied: Model, world: World) -> Iterator[Env]:
    """Every way to make the formula true. Calls look into `model`; under a `not` they look into `denied`."""
    match formula:
        case ast.Truth(value):
            yield from [env] if value else []
        case ast.Call(predicate, args):
            for row in model.get((predicate.text, len(args)), ()):
                yield from unified(args, row, env, world)
        case ast.Membership(term, values):
            for literal in values:
                yield from unified((term,), (literal.value,), env, world)
        case ast.And(parts):
            found = [env]
            for part in parts:
                found = [after for before in found for after in solutions(part, before, model, denied, world)]
            yield from found
        case ast.Or(parts):
            for part in parts:
                yield from solutions(part, env, model, denied, world)
        case ast.Matches(variable, type_name, exact):
            choices = world.exactly(type_name.text) if exact else world.values[type_name.text]
            for value in choices:
                yield from unified((variable,), (value,), env, world)
        case ast.Comparison(operator, left, right):
            for found in every(names((left, right)), env, world):
                if compared(operator, meaning(left, found, world), meaning(right, found, world)):
                    yield found
        case NoneSuch(inner, shared):
            for found in every(shared & mentioned(inner), env, world):
                if not any(True for _ in solutions(inner, found, denied, model, world)):
                    yield found


def unified(terms: tuple[ast.Term, ...], row: Row, env: Env, world: World) -> Iterator[Env]:
    found = env
    for term, value in zip(terms, row, strict=True):
        if not isinstance(term, ast.Variable):
            if meaning(term, env, world) != value:
                return
        elif term.name not in found:
            if term.name != "_":
                found = found | {term.name: value}
        elif found[term.name] != value:
            return
    yield found


def every(variables: Iterable[str], env: Env, world: World) -> Iterator[Env]:
    """The unbound ones among the variables, bound to every value in turn."""
    free = sorted(set(variables) - set(env))
    for values in itertools.product(world.everything, repeat=len(free)):
        yield env | dict(zip(free, values, strict=True))


def meaning(term: ast.Term, env: Env, world: World) -> Value:
    match term:
        case ast.Variable(name):
            return env[name]
        case ast.Literal(value):
            return value
        case ast.CurrentTime():
            return world.now


def compared(operator: str, left: Value, right: Value) -> bool:
    if operator in ("=", "!="):
        return (left == right) == (operator == "=")
    if (left.type, right.type) != (INTEGER, INTEGER):
        return False
    a, b = int(left.id), int(right.id)
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]


# ---- the model: everything that is true -----------------------------------------------------------------------


def model_of(policy: ast.Policy, facts: Facts, world: World) -> Model:
    return fixpoint(clauses_of(policy), list(facts), world)


def fixpoint(clauses: list[Clause], facts: Facts, world: World) -> Model:
    """The well-founded model: what is certainly true and what is possibly true, until they meet."""
    certain: Model = {}
    while True:
        possible = least(clauses, facts, certain, world)
        more = least(clauses, facts, possible, world)
        if more == possible:
            return more
        assert more != certain, "the policy recurses through negation"
        certain = more


def least(clauses: list[Clause], facts: Facts, denied: Model, world: World) -> Model:
    """Everything that follows, where what is not in `denied` counts as false under a `not`."""
    model: dict[tuple[str, int], set[Row]] = defaultdict(set)
    for predicate, row in facts:
        model[predicate, len(row)].add(row)
    waiting = list(clauses)
    while waiting:
        grown = set()
        for rule in waiting:
            more = set(consequences(rule, model, denied, world)) - model[rule.key]
            if more:
                model[rule.key] |= more
                grown.add(rule.key)
        waiting = [rule for rule in clauses if not rule.reads.isdisjoint(grown)]
    return model


def consequences(rule: Clause, model: Model, denied: Model, world: World) -> Iterator[Row]:
    variables = names(rule.head)
    for env in solutions(rule.body, {}, model, denied, world):
        for found in every(variables, env, world):
            yield tuple(meaning(term, found, world) for term in rule.head)


# ---- questions ---------------------------------------------------------------------------------------------------


Call = tuple[str, tuple[str, ...]]  # predicate, variables
Constraints = Mapping[str, tuple[str, tuple[str, ...] | None]]  # variable -> its exact type, its ids or None


def answers(model: Model, world: World, calls: Iterable[Call], constraints: Constraints) -> set[Row]:
    """The solutions of the calls together: one column for each variable, in order of first appearance."""
    calls = list(calls)
    variables = list(dict.fromkeys(name for _, args in calls for name in args))
    given, body, types = [], [call(predicate, *map(ast.Variable, args)) for predicate, args in calls], []
    for name in variables:
        type_name, ids = constraints[name]
        types.append(ast.Matches(ast.Variable(name), ast.Name(type_name), exact=True))
        if ids is not None:
            given.append(ast.Membership(ast.Variable(name), tuple(ast.Literal(Value(type_name, i)) for i in ids)))
    found = solutions(ast.And((*given, *body, *types)), {}, model, model, world)
    return {tuple(env[name] for name in variables) for env in found}


def matching(model: Model, predicate: str, pattern: tuple[tuple[str | None, str | None], ...]) -> set[Row]:
    """The rows of one predicate, where None in a pattern stands for anything."""
    rows = model.get((predicate, len(pattern)), set())
    fits = [lambda v, t=t, i=i: t in (None, v.type) and i in (None, v.id) for t, i in pattern]
    return {row for row in rows if all(fit(value) for fit, value in zip(fits, row, strict=True))}


def is_sayable(rows: set[Row], world: World) -> bool:
    """Whether rows of known values and wildcards say it all: who grants to the unmentioned must grant to everyone."""
    for row in rows:
        columns = [world.exactly(v.type) if v == unmentioned(v.type) else (v,) for v in row]
        if not rows.issuperset(itertools.product(*columns)):
            return False
    return True
