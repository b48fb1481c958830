"""The oracle gives the known answers of the generated cases.

A tenth of the cases by default; `ALL_CASES=1` for every one.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from policy.language import parse
from policy.language.source import Source
from policy.values import STRING, Value
from tests.reference import Model, Row, World, answers, is_sayable, model_of
from tests.reference_clauses import declared

CASES = json.loads((Path(__file__).parent.parent / "cases" / "decisions.json").read_text())
ACTIONS = ["p0", "p1", "p2", "zap", "nope"]
NOW = 1_700_000_000


def row_of(fact: dict) -> tuple[str, Row]:
    return fact["predicate"], tuple(Value(arg["type"], arg["id"]) for arg in fact["args"])


def asked_about(case: dict) -> Iterable[Value]:
    types, ids = declared(parse(Source(case["policy"]))), case["dom"]
    yield from (Value(STRING, action) for action in ACTIONS)
    yield from (Value(name, an_id) for name in types if name in ids for an_id in (*ids[name], "nothing"))
    yield Value("User", "nobody")


def answer(question: dict, model: Model, world: World, dom: dict[str, list[str]]) -> object:
    allowed = model["allow", 3]
    actor, action, resource = Value(*question["actor"]), question["action"], Value(*question["resource"])
    ids = [*dom[resource.type], "nothing"]
    match question["kind"]:
        case "authorize":
            return (actor, Value(STRING, action), resource) in allowed
        case "actions":
            return [name for name in ACTIONS if (actor, Value(STRING, name), resource) in allowed]
        case "authorize_resources":
            return [pair for pair in question["resources"] if (actor, Value(STRING, action), Value(*pair)) in allowed]
        case "list_actors":
            everyone = (*dom["User"], "nobody")
            return [an_id for an_id in everyone if (Value("User", an_id), Value(STRING, action), resource) in allowed]
        case "list":
            constraints = {"u": (actor.type, (actor.id,)), "a": (STRING, (action,)), "r": (resource.type, None)}
            rows = answers(model, world, [("allow", ("u", "a", "r"))], constraints)
            granted = {row[2].id for row in rows}
            return [an_id for an_id in ids if an_id in granted] if is_sayable(rows, world) else "refuse"
        case "all_pairs":
            pairs = [(name, an_id) for name in ACTIONS for an_id in ids]
            return [[a, r] for a, r in pairs if (actor, Value(STRING, a), Value(resource.type, r)) in allowed]


@pytest.mark.parametrize("case", CASES if os.environ.get("ALL_CASES") else CASES[::10], ids=lambda case: case["seed"])
def test_the_oracle_gives_the_known_answers(case):
    policy, mentioned = parse(Source(case["policy"])), list(asked_about(case))
    for with_context in (False, True):
        facts = [row_of(fact) for fact in case["facts"] + (case["context"] if with_context else [])]
        world = World.of(policy, facts, mentioned, NOW)
        model = model_of(policy, facts, world)
        for question in case["questions"]:
            if question["context"] == with_context:
                assert answer(question, model, world, case["dom"]) == question["expect"], question
