"""The service, the oracle and clingo agree: three evaluators of which one is not ours.

`python -m tests.properties.run_long --answer-sets` asks clingo as much as there is time for.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from checks.analysis.proofs import Slice
from checks.analysis.questions import differing
from checks.analysis.search import Claim, Solver, searched
from policy.language import ast
from policy.rules import compile_text
from policy.rules.program import Not, Program
from tests.properties import differences, policy_changes
from tests.properties.answer_sets import solved_model
from tests.properties.differences import outcomes
from tests.properties.mutations import written
from tests.properties.random_policies import case_of
from tests.reference import World, model_of
from tests.sampling import seeds, some

numbers = itertools.count()


@seeds(range(1_000, 1_020), 5)
def test_every_answer_is_clingos(new_api, monkeypatch, seed: int):
    monkeypatch.setattr(differences, "model_of", solved_model)
    for outcome in outcomes(case_of(seed), lambda: new_api(f"answersets{next(numbers)}").key):
        assert outcome.is_right, str(outcome)


# ---- facts for which exactly one rule, or exactly one `not`, decides -----------------------------------------------


def decided_by_one(program: Program) -> Iterator[tuple[Claim, Program]]:
    """Claims that a rule changes nothing, and that a `not` of it does not; each with the program without it."""
    for rule in program.rules:
        if rule.head.predicate in program.helpers:
            continue
        without = replace(program, rules=tuple(each for each in program.rules if each is not rule))
        yield from _claims(program, without)
        for place, literal in enumerate(rule.body):
            if isinstance(literal, Not):
                laxer = replace(rule, body=(*rule.body[:place], *rule.body[place + 1 :]))
                more = replace(program, rules=tuple(laxer if each is rule else each for each in program.rules))
                yield from _claims(more, program)


def _claims(holds: Program, fails: Program) -> Iterator[tuple[Claim, Program]]:
    for _, goal in differing(holds, fails)[:1]:
        yield Claim(Slice(holds, goal), Slice(fails, goal), by_rules=True), fails


@pytest.mark.one_database
@pytest.mark.parametrize("path", some(policy_changes.PUBLIC, 6), ids=lambda path: path.stem)
def test_one_rule_decides(db, path):
    """The oracle agrees on the facts for which one rule decides, which no random generator makes."""
    base = written(path)
    program, decided = compile_text(base.text), 0

    with Solver(60.0) as solver:
        for claim, _ in decided_by_one(program):
            searched([claim], solver, most=2)
            if claim.witness is None:
                continue
            decided += 1
            witness = claim.witness
            held = (witness.atom.predicate, len(witness.atom.args)), witness.atom.args
            is_denied_by_not = len(claim.holds.program.rules) == len(claim.fails.program.rules)
            expected = not is_denied_by_not
            assert holds_by_oracle(base.policy, program, witness, *held) == expected, str(witness)
    assert decided or path.stem == "strings_only"


def holds_by_oracle(policy: ast.Policy, program: Program, witness, key, row) -> bool:
    facts = [
        (fact.predicate, fact.args)
        for fact in witness.facts
        if program.accepts(fact.predicate, tuple(arg.type for arg in fact.args))
    ]
    world = World.of(policy, facts, row, witness.now)
    return row in model_of(policy, facts, world)[key]


# ---- changes of policies -------------------------------------------------------------------------------------------


@pytest.mark.one_database
@pytest.mark.parametrize("seed", some((1, 2, 3), 3))
def test_a_change_of_decisions_is_found(db, seed):
    assert [(each.base.name, each.text) for each in policy_changes.changed(seed, 8, 1) if each.missed] == []


@pytest.mark.one_database
@pytest.mark.parametrize("seed", some((1, 2, 3), 3))
def test_the_same_policy_in_other_words_is_the_same(db, seed):
    assert [(each.base.name, each.text) for each in policy_changes.reworded(seed, 12) if each.is_found] == []
