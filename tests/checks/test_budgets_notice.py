"""Budgets of plans notice a loss: whatever makes plans cheap, switched off, makes one of the questions too dear."""

from typing import NamedTuple

import pytest

from checks.engine.plan import draft, planner, unfold
from checks.engine.plan.draft import Chooser
from checks.engine.rules import recursion, rewrite, ruleset
from checks.engine.rules.clauses import Col
from checks.engine.sql import render, text
from tests.checks.measured import ROOM, Measure, is_dear, with_room


class Loss(NamedTuple):
    """What is put in place of which name, and a question that then costs too much."""

    places: tuple[object, ...]
    name: str
    other: object
    policy: str
    question: str


def no(*_: object) -> bool:
    return False


def nothing(*_: object) -> None:
    return None


def unchanged(clauses, *_: object):
    return clauses


def distinct(arms):
    return list(dict.fromkeys(arms))


def of_one_end(call, *others, found=draft.prefix_of):
    return None if isinstance(call.args[1], Col) else found(call, *others)


LOSSES = {
    "decision by set": Loss((unfold,), "_is_better_as_set", no, "company", 'allow(User, "sign", Doc?)'),
    "factoring": Loss((recursion,), "factors_of", nothing, "company", 'allow(User, "comment", Doc?)'),
    "transitivity": Loss((ruleset,), "linearised", unchanged, "company", 'allow(User, "comment", Doc)'),
    "subsumption": Loss((ruleset,), "subsumed", unchanged, "company", 'allow(User, "read", Doc?)'),
    "merging of clauses": Loss((ruleset,), "merged", unchanged, "diamond", 'allow(User, "read", T0)'),
    "renaming": Loss((rewrite,), "_renamed", nothing, "company", 'allow(User, "read", Doc?)'),
    "kept states": Loss(
        (planner,),
        "in_place",
        lambda explored: frozenset(),
        "ladders_of_roles",
        'allow(User, "pull", Repo*)',
    ),
    "prefixes": Loss((draft,), "prefix_of", nothing, "company", "allow(User, String?, Doc)"),
    "sets, not pairs": Loss((draft,), "prefix_of", of_one_end, "grants_to_teams", 'allow(User, "read", Repo)'),
    "sums, not products": Loss((Chooser,), "_multiplies", no, "strings_only", 'is_a("poodle", String?)'),
    "merging of texts": Loss(
        (text, render), "merged", distinct, "resource_roles_through_relations", 'allow(User, "read", Issue?)'
    ),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_loss_is_too_dear(loss, monkeypatch):
    budget = with_room(Measure(loss.policy).cost(loss.question), ROOM)
    for place in loss.places:
        monkeypatch.setattr(place, loss.name, loss.other)
    assert is_dear(Measure(loss.policy).cost(loss.question), budget)


def test_few_facts_are_read_first():
    """With arguments that lead to few facts, a check looks these up in one set, not each pair of two sets."""
    question = 'allow(User, "read", Doc)'
    before, measure = Measure("company").cost(question), Measure("company")
    measure.engine.is_narrow = measure.counting.is_narrow = lambda signature, index: signature.types[index] != "User"
    assert measure.cost(question).steps < before.steps
