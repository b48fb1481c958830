"""What a policy means by an evaluator that is not ours: the translation for clingo, with fixed facts.

model = solved_model(policy, facts, world)      as `tests.reference.model_of`, of all predicates that rules derive
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import clingo

from checks.analysis.proofs import Slice
from checks.analysis.search import AnswerSetProgram
from facts.wire import Fact
from policy.language import ast
from policy.language.source import Source
from policy.rules import compile_policy
from policy.rules.changes import AtomSet
from policy.rules.program import Program
from policy.values import PRIMITIVES
from tests.reference import Facts, Model, Row, World, unmentioned


def solved_model(policy: ast.Policy, facts: Facts, world: World) -> Model:
    program = compile_policy(policy, Source(""))
    return solved(program, list(facts), world)


def solved(program: Program, facts: list[tuple[str, Row]], world: World) -> Model:
    model: dict[tuple[str, int], set[Row]] = defaultdict(set)
    for predicate, row in facts:
        model[predicate, len(row)].add(row)
    declared = frozenset((*program.types, *PRIMITIVES))
    types = declared | {value.type for value in world.everything}
    # A variable of any type also stands for values of types that the policy does not declare.
    rules = [
        replace(rule, types={name: types if kinds >= declared else kinds for name, kinds in rule.types.items()})
        for rule in program.rules
    ]
    program = replace(program, rules=tuple(rules))
    keys = [key for key in program.rules_by_predicate if key[0] not in program.helpers]
    part = Slice(program, *(AtomSet.of(name, [types] * arity) for name, arity in keys))
    mentioned = {value for _, row in facts for value in row}
    writer = AnswerSetProgram([part], lambda name: 0, int(world.now.id), {*world.everything, *mentioned})
    writer.rules(part, "p")
    for predicate, row in facts:
        writer.add(f"{writer.ground('f', Fact(predicate, row))}.")
    writer.moment(later=False)
    names = {f"p{number}": key for key, number in writer.predicates.items() if key in keys}
    for name, (_, arity) in names.items():
        writer.add(f"#show {name}/{arity}.")
    for symbol in (each for each in stable_model(writer.text) if each.name in names):
        row = tuple(writer.values[argument.number] for argument in symbol.arguments)
        if set(row) <= set(world.everything):
            model[names[symbol.name]].add(row)
    return model


def stable_model(text: str) -> Iterable[clingo.Symbol]:
    """The only stable model of a program without choices."""
    control = clingo.Control(["--warn=none", "0"])
    control.add("base", [], text)
    control.ground([("base", [])])
    with control.solve(yield_=True) as handle:
        models = [model.symbols(shown=True) for model in handle]
    assert len(models) == 1, f"{len(models)} models"
    return models[0]


__all__ = ["solved", "solved_model", "stable_model", "unmentioned"]
