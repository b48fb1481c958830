"""One question asked in every way that there is: all of them must say the same, which is what the oracle says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from policy.values import STRING, Value
from tests.properties.questions import (
    Actions,
    Ask,
    Authorize,
    AuthorizeResources,
    Evaluate,
    Explain,
    List,
    QueryFacts,
    Question,
)
from tests.properties.random_policies import Case
from tests.reference import Row

ALLOW = "allow"


def in_every_way(case: Case, rng: Random, most: int) -> Case:
    """The case with some of its questions, and goals of its rules, asked in every way."""
    decisions = [each for each in case.questions if isinstance(each.ask, Authorize)][:most]
    asked = [Question(way, each.with_context) for each in decisions for way in ways_of_decision(each.ask, case)]
    for predicate, row in case.goals[:most]:
        with_context = rng.random() < 0.4
        asked += [Question(way, with_context) for way in ways_of_goal(predicate, row)]
    return replace(case, questions=tuple(dict.fromkeys((*case.questions, *asked))))


def ways_of_decision(ask: Authorize, case: Case) -> Iterator[Ask]:
    actor, action, resource = ask.actor, ask.action, ask.resource
    others = [value for value in case.ids if value.id == resource.id]  # of other types
    yield List(actor, action, resource.type)
    yield Actions(actor, resource)
    yield AuthorizeResources(actor, action, (resource, *others, resource))
    yield from ways_of_goal(ALLOW, (actor, Value(STRING, action), resource))


def ways_of_goal(predicate: str, row: Row) -> Iterator[Ask]:
    """With every choice of what is asked for, and what is given."""
    names = tuple(f"v{index}" for index in range(len(row)))
    for free in itertools.product((False, True), repeat=len(row)):
        constraints = ((name, v.type, None if asked else (v.id,)) for name, v, asked in zip(names, row, free))
        yield Evaluate(((predicate, names),), tuple(constraints))
    if row:
        yield QueryFacts(predicate, tuple((value.type, value.id) for value in row))
        yield QueryFacts(predicate, tuple((None, None) for _ in row))
        yield QueryFacts(predicate, tuple((value.type, None) for value in row))
    yield Explain(predicate, row)
