"""What must hold between answers, whatever they are: no oracle is asked here."""

import itertools
from dataclasses import replace
from random import Random

import pytest

from policy.values import STRING, Value
from tests.properties import ask_adapter
from tests.properties.ask_adapter import Caller, Fact
from tests.properties.differences import fitted
from tests.properties.questions import Actions, Authorize, AuthorizeResources, Evaluate, Question, Refused
from tests.properties.random_policies import Case, case_of
from tests.properties.renaming import renamed, renamed_answer
from tests.sampling import seeds

some_seeds = seeds([*range(14), 15], 8)  # the policy of 14 is not planned soon


@pytest.fixture
def environment_of(new_api):
    """Makes an environment with a case's policy and facts."""
    numbers = itertools.count()

    def make(case: Case) -> Caller:
        caller = Caller(new_api(f"coherence{next(numbers)}").key)
        ask_adapter.publish(caller, case.policy)
        ask_adapter.store(caller, case.facts)
        return caller

    return make


def answers(caller: Caller, case: Case) -> list[object]:
    """All answers of the case, in a form that does not depend on order."""
    context = replace(caller, context=case.context)
    return [
        settled(ask_adapter.ask(context if question.with_context else caller, question.ask))
        for question in case.questions
    ]


def settled(said: object) -> object:
    return sorted(map(repr, said)) if isinstance(said, list) else said


# ---- one question, asked in every way ---------------------------------------------------------------------


@some_seeds
def test_every_way_of_asking_says_the_same(environment_of, seed: int):
    case, rng = fitted(case_of(seed)), Random(seed)
    caller = replace(environment_of(case), context=case.context)
    asked = [question.ask for question in case.questions if isinstance(question.ask, Authorize)]
    for ask in asked:
        things = sorted({value for _, row in (*case.facts, *case.context) for value in row if value != ask.resource})
        others = [value for value in things if value.type == ask.resource.type][:4]
        for resource in rng.sample([ask.resource, *others], 1 + len(others)):
            check_one(caller, ask.actor, ask.action, resource)


def check_one(caller: Caller, actor: Value, action: str, resource: Value) -> None:
    allowed = ask_adapter.authorize(caller, actor, action, resource)
    assert isinstance(allowed, bool)
    assert (ask_adapter.authorize_resources(caller, actor, action, (resource,)) == [resource]) == allowed
    kinds = {"a": (actor.type, actor.id), "p": (STRING, action), "r": (resource.type, resource.id)}
    for asked in ("", "a", "p", "r", "pr"):
        constraints = tuple((v, kind, None if v in asked else (an_id,)) for v, (kind, an_id) in kinds.items())
        rows = ask_adapter.evaluate_query(caller, Evaluate((("allow", ("a", "p", "r")),), constraints))
        if not isinstance(rows, Refused):
            fits = [row for row in rows if all(row[v] in (None, an_id) for v, (_, an_id) in kinds.items())]
            assert bool(fits) == allowed, (asked, rows)
    for listed, wanted in (
        (ask_adapter.list_(caller, actor, action, resource.type), resource.id),
        (ask_adapter.actions(caller, actor, resource), action),
    ):
        assert isinstance(listed, Refused) or (wanted in listed or "*" in listed) == allowed, listed


# ---- changes that change nothing -----------------------------------------------------------------------------


@some_seeds
def test_the_order_of_rules_and_facts_does_not_matter(environment_of, seed: int):
    case, rng = fitted(case_of(seed)), Random(seed)
    blocks = [replace(block, shorthands=rng.sample(block.shorthands, len(block.shorthands))) for block in case.blocks]
    shuffled = replace(
        case,
        blocks=tuple(rng.sample(blocks, len(blocks))),
        rules=tuple(rng.sample(case.rules, len(case.rules))),
        facts=tuple(rng.sample(case.facts, len(case.facts))),
        context=tuple(rng.sample(case.context, len(case.context))),
    )
    assert answers(environment_of(case), case) == answers(environment_of(shuffled), shuffled)


@some_seeds
def test_ids_are_only_names(environment_of, seed: int):
    """All the ids changed, and all the answers changed back."""
    case = fitted(case_of(seed))
    other = renamed(case)
    caller = environment_of(other)
    said = [
        settled(renamed_answer(ask_adapter.ask(replace(caller, context=context), question.ask), question.ask))
        for question in other.questions
        for context in [other.context if question.with_context else ()]
    ]
    assert said == answers(environment_of(case), case)


@some_seeds
def test_context_facts_equal_stored_facts(environment_of, seed: int):
    case, rng = fitted(case_of(seed)), Random(seed)
    moved = tuple(fact for fact in case.facts if rng.random() < 0.5)
    stored = replace(case, context=(), facts=tuple(dict.fromkeys((*case.facts, *case.context))))
    brought = replace(
        case,
        facts=tuple(fact for fact in case.facts if fact not in moved),
        context=tuple(dict.fromkeys((*moved, *case.context))),
        questions=tuple(Question(question.ask, True) for question in case.questions),
    )
    assert answers(environment_of(stored), stored) == answers(environment_of(brought), brought)


@some_seeds
def test_facts_about_others_do_not_matter(environment_of, seed: int):
    """A second copy of all facts, about users and things of other names, and a neighbour environment with them."""
    case = fitted(case_of(seed))
    ghosts = renamed(case).facts
    case = replace(case, questions=tuple(q for q in case.questions if is_about_named_things(q)))
    alone = answers(environment_of(case), case)
    haunted = replace(case, facts=(*case.facts, *(fact for fact in ghosts if mentions_only_entities(fact))))
    assert answers(environment_of(haunted), case) == alone


def is_about_named_things(question: Question) -> bool:
    return isinstance(question.ask, Authorize | Actions | AuthorizeResources)


def mentions_only_entities(fact: Fact) -> bool:
    """A fact between Strings would be about the same Strings."""
    return any(value.type not in (STRING, "Integer", "Boolean") for value in fact[1])
