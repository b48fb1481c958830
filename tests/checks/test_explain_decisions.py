"""Every generated decision is explained, and an independent reader finds nothing wrong with the explanation."""

import json
from pathlib import Path

import pytest

from policy import rules
from policy.language.source import Source
from policy.values import Value
from tests.checks.decisions import useful
from tests.checks.proofs import faults_of_obstacles, faults_of_proof, rows_of, truth
from tests.sampling import some

CASES = json.loads((Path(__file__).parent.parent / "cases" / "decisions.json").read_text())


@pytest.mark.parametrize("case", some(CASES[::3], 8), ids=lambda case: str(case["seed"]))
def test_every_decision_of_the_case_has_a_proof_or_an_obstacle(api, case):
    assert api.post("/policy", {"src": case["policy"], "filename": ""}).status_code == 200
    program = rules.compile_source(Source(case["policy"]))
    stored, context = useful(program, case["facts"]), useful(program, case["context"])
    assert api.post("/batch", [{"inserts": stored}]).status_code == 200
    questions = [each for each in case["questions"] if each["kind"] == "authorize"]
    mentioned = tuple(value for each in questions for value in _goal(each)[1])
    known = {
        brings: truth(case["policy"], rows_of(stored), rows_of(context) if brings else (), mentioned)
        for brings in {each["context"] for each in questions}
    }
    faults = []
    for question in questions:
        body = _body(question, context if question["context"] else [])
        answer = api.post("/explain", body)
        assert answer.status_code == 200, answer.content
        said = answer.json()
        assert said["allowed"] is question["expect"]
        look = faults_of_proof if said["allowed"] else faults_of_obstacles
        what = said["proof"] if said["allowed"] else said
        faults += [(question, fault) for fault in look(what, _goal(question), known[question["context"]])]
    assert not faults, faults[:5]


def _goal(question: dict) -> tuple[str, tuple[Value, ...]]:
    return "allow", (Value(*question["actor"]), Value("String", question["action"]), Value(*question["resource"]))


def _body(question: dict, context: list[dict]) -> dict:
    actor, resource = question["actor"], question["resource"]
    return {
        "actor_type": actor[0], "actor_id": actor[1], "action": question["action"],
        "resource_type": resource[0], "resource_id": resource[1], "context_facts": context,
    }  # fmt: skip
