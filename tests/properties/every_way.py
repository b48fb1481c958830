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
    AuthorizeEach,
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
ALIKE = 4
UNKNOWN = "Nobody's type"
ODD = ("**", "o'hara", '"]', "$1 ?1 %s :v0", "\\u0000", "\x01\u2028 \N{GRINNING FACE}", "7", "null")
FEWER = 6  # of the case's own questions, beside the others


def in_every_way(case: Case, rng: Random, most: int) -> Case:
    """The case with some of its questions, and goals of its rules, asked in other ways too, and about other things.

    Questions that differ in their ids only share a plan: many cost little more than one.
    """
    decisions = [each for each in case.questions if isinstance(each.ask, Authorize)][:most]
    asked = [Question(way, each.with_context) for each in decisions for way in ways_of_decision(each.ask, case, rng)]
    for predicate, row in case.goals[: 2 * most]:
        with_context = rng.random() < 0.4
        asked += [Question(way, with_context) for way in ways_of_goal(predicate, row, case, rng)]
    at_once = AuthorizeEach(tuple(some_checks(case, rng)))
    asked += [Question(at_once, with_context) for with_context in (False, True)]
    return replace(case, questions=tuple(dict.fromkeys((*case.questions[:FEWER], *asked))))


def some_checks(case: Case, rng: Random) -> Iterator[tuple[Value, str, Value]]:
    """All of the case's decisions, some about others, and what nobody mentions; in any order, some of them twice."""
    found = []
    for ask in [each.ask for each in case.questions if isinstance(each.ask, Authorize)]:
        action = rng.choice((ask.action, *ODD))
        found += [(actor, ask.action, resource) for actor, resource in alike((ask.actor, ask.resource), case, rng)]
        found += [(ask.actor, action, ask.resource), (ask.resource, ask.action, ask.actor)]
        found += [(ask.actor, ask.action, ask.actor), (Value(UNKNOWN, ask.actor.id), ask.action, ask.resource)]
        found += [(ask.actor, ask.action, Value(ask.resource.type, rng.choice(ODD)))]
    rng.shuffle(found)
    yield from (*found, *found[:3])


def ways_of_decision(ask: Authorize, case: Case, rng: Random) -> Iterator[Ask]:
    others = [value for value in case.ids if value.id == ask.resource.id]  # of other types
    in_bulk = rng.random() < 0.5
    for actor, resource in alike((ask.actor, ask.resource), case, rng):
        yield Authorize(actor, ask.action, resource)
        yield List(actor, ask.action, resource.type)
        yield Actions(actor, resource, in_bulk)
        yield AuthorizeResources(actor, ask.action, (resource, *others, ask.resource))
    yield from ways_of_goal(ALLOW, (ask.actor, Value(STRING, ask.action), ask.resource), case, rng)


def ways_of_goal(predicate: str, row: Row, case: Case, rng: Random) -> Iterator[Ask]:
    """Given, asked for as a whole, and with some choice of what is asked for."""
    names = tuple(f"v{index}" for index in range(len(row)))
    choices = list(itertools.product((False, True), repeat=len(row)))
    chosen, pattern = dict.fromkeys((choices[0], choices[-1], rng.choice(choices))), rng.randrange(3)
    for other in alike(row, case, rng):
        for free in chosen:
            constraints = ((name, v.type, None if asked else (v.id,)) for name, v, asked in zip(names, other, free))
            yield Evaluate(((predicate, names),), tuple(constraints))
        if row:
            given, typed = ((v.type, v.id) for v in other), ((v.type, None) for v in other)
            yield QueryFacts(predicate, tuple((given, typed, ((None, None) for _ in row))[pattern]))
    yield Explain(predicate, row)


def alike(row: Row, case: Case, rng: Random) -> Iterator[Row]:
    """The row, and some of other values of the same types."""
    yield row
    known = [[v for v in case.ids if v.type == value.type] or [value] for value in row]
    rows = [other for other in itertools.product(*known) if other != row]
    yield from rng.sample(rows, min(len(rows), ALIKE))
