"""What the engine is measured against must itself be right: the statements by hand agree with the oracle."""

import pytest

from facts.bulk import load
from facts.wire import Fact
from policy.active import Caller
from policy.language import parse
from policy.language.source import Source
from policy.values import Value
from tests.benchmarks.engine import Sample, by_hand
from tests.benchmarks.generate import POLICY, Size, fact, facts_of, numbered
from tests.benchmarks.handwritten import QUESTIONS
from tests.reference import World, model_of
from tests.sampling import some

SIZE = Size(150)
FACTS = [numbered(each) for each in dict.fromkeys(facts_of(SIZE))]
BROUGHT = {
    "has_role_User_Project": [numbered(fact("has_role", ("User", 1), "admin", ("Project", 2)))],
    "has_role_User_Repo": [numbered(fact("has_role", ("User", 1), "reader", ("Repo", 3)))],
    "has_role_User_Folder": [numbered(fact("has_role", ("User", user), "auditor", ("Folder", 4))) for user in (0, 3)],
}


@pytest.fixture(scope="module")
def models():
    """What is allowed with each set of context facts, and with none."""
    policy, found = parse(Source(POLICY)), {}
    for name, brought in {"": [], **BROUGHT}.items():
        facts = [*FACTS, *brought]
        found[name] = model_of(policy, facts, World.of(policy, facts))["allow", 3]
    return found


@pytest.mark.parametrize("brings_facts", [False, True])
@pytest.mark.parametrize("question", some(QUESTIONS, 12), ids=lambda question: question.name)
def test_a_statement_by_hand_is_right(environment, models, question, brings_facts):
    load(environment.id, enumerate(Fact(*each) for each in FACTS))
    allowed = models[question.brought if brings_facts else ""]
    context = tuple(Fact(*each) for each in BROUGHT[question.brought]) if brings_facts else ()
    said = by_hand(Caller(environment.id, ""), question, brings_facts)
    users = sorted({value.id for _, row in FACTS for value in row if value.type == "User"})
    things = sorted({value.id for _, row in FACTS for value in row if value.type == question.resource_type})
    for user in users:
        action = Value("String", question.action)
        granted = [i for i in things if (Value("User", user), action, Value(question.resource_type, i)) in allowed]
        if question.is_list:
            assert said(Sample(user, "", context)) == granted
        else:
            assert [i for i in things if said(Sample(user, i, context))] == granted
