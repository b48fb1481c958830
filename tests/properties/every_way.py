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
FEWER = 8  # of the case's own questions, beside the others


def in_every_way(case: Case, rng: Random, most: int) -> Case:
    """The case with some of its questions, and goals of its rules, asked in other ways too."""
    decisions = [each for each in case.questions if isinstance(each.ask, Authorize)][:most]
    asked = [Question(way, each.with_context) for each in decisions for way in ways_of_decision(each.ask, case, rng)]
    for predicate, row in case.goals[: 2 * most]:
        with_context = rng.random() < 0.4
        asked += [Question(way, with_context) for way in ways_of_goal(predicate, row, rng)]
    return replace(case, questions=tuple(dict.fromkeys((*case.questions[:FEWER], *asked))))


def ways_of_decision(ask: Authorize, case: Case, rng: Random) -> Iterator[Ask]:
    actor, action, resource = ask.actor, ask.action, ask.resource
    others = [value for value in case.ids if value.id == resource.id]  # of other types
    yield List(actor, action, resource.type)
    yield Actions(actor, resource, in_bulk=rng.random() < 0.5)
    yield AuthorizeResources(actor, action, (resource, *others, resource))
    yield from ways_of_goal(ALLOW, (actor, Value(STRING, action), resource), rng)


def ways_of_goal(predicate: str, row: Row, rng: Random) -> Iterator[Ask]:
    """Given, asked for as a whole, and with some choice of what is asked for."""
    names = tuple(f"v{index}" for index in range(len(row)))
    choices = list(itertools.product((False, True), repeat=len(row)))
    for free in dict.fromkeys((choices[0], choices[-1], rng.choice(choices))):
        constraints = ((name, v.type, None if asked else (v.id,)) for name, v, asked in zip(names, row, free))
        yield Evaluate(((predicate, names),), tuple(constraints))
    if row:
        given, whole = ((value.type, value.id) for value in row), ((None, None) for _ in row)
        yield QueryFacts(predicate, tuple(rng.choice((given, whole, ((value.type, None) for value in row)))))
    yield Explain(predicate, row)
