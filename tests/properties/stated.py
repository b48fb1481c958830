"""A case whose answers its policy states itself, as a test: the policy is only taken if they are right."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from random import Random

from policy.language import parse
from policy.language.source import Source
from policy.values import PRIMITIVES, STRING, Value
from tests.properties import ask_adapter
from tests.properties.ask_adapter import Caller, PolicyRefused
from tests.properties.differences import NewKey, fitted
from tests.properties.questions import Authorize
from tests.properties.random_policies import Case
from tests.reference import Model, Row, World, model_of, unmentioned

Goal = tuple[str, Row]
MOST = 25  # assertions


def refusal(case: Case, rng: Random, new_key: NewKey) -> str | None:
    """What the service says against the policy with the test; nothing if it takes it."""
    text = stated(fitted(case), rng)
    try:
        ask_adapter.publish(Caller(new_key()), text)
    except PolicyRefused as refused:
        return f"{refused}\n{text}"
    return None


def stated(case: Case, rng: Random) -> str:
    """The policy with all facts in a test, and what follows from them by the oracle."""
    goals = list(dict.fromkeys(goals_of(case)))[:MOST]
    policy = parse(Source(case.policy))
    world = World.of(policy, case.facts, [value for _, row in goals for value in row], int(time.time()))
    model = model_of(policy, case.facts, world)
    facts = "".join(f"    {_atom(*fact)};\n" for fact in case.facts)
    lines = [_assertion(goal, model) for goal in goals]
    lines += [_listing(goal, rng, model, world) for goal in goals[:6]]
    asserted = "".join(f"  {line}\n" for line in rng.sample(lines, len(lines)))
    return f'{case.policy}\ntest "all of it" {{\n  setup {{\n{facts}  }}\n{asserted}}}\n'


def goals_of(case: Case) -> Iterator[Goal]:
    """Those of the case, and the same ones of other things: assertions that differ in one place are one question."""
    given = [goal for goal in case.goals if goal[1]]
    given += [
        ("allow", (each.ask.actor, Value(STRING, each.ask.action), each.ask.resource))
        for each in case.questions
        if isinstance(each.ask, Authorize)
    ]
    for predicate, row in given:
        yield predicate, row
    for (predicate, row), value in itertools.product(given, case.ids):
        for index, old in enumerate(row):
            is_like = old.type not in PRIMITIVES and value.id == old.id
            if is_like or value.type == old.type:
                yield predicate, (*row[:index], value, *row[index + 1 :])


def _atom(predicate: str, row: Row) -> str:
    return f"{predicate}({', '.join(map(str, row))})"


def _holds(goal: Goal, model: Model) -> bool:
    return goal[1] in model.get((goal[0], len(goal[1])), ())


def _assertion(goal: Goal, model: Model) -> str:
    return f"{'assert' if _holds(goal, model) else 'assert_not'} {_atom(*goal)};"


def _listing(goal: Goal, rng: Random, model: Model, world: World) -> str:
    """One argument asked for: exactly which values it has, or where it may be any, that it has some."""
    predicate, row = goal
    index = rng.randrange(len(row))
    kind = row[index].type
    found = [v for v in world.values[kind] if _holds((predicate, (*row[:index], v, *row[index + 1 :])), model)]
    args = ", ".join([*map(str, row[:index]), f"v: {kind}", *map(str, row[index + 1 :])])
    if not found:
        return f"assert_not {predicate}({args});"
    listed = "" if any(v == unmentioned(v.type) for v in found) else f" iff v in [{', '.join(map(str, found))}]"
    return f"assert {predicate}({args}){listed};"
