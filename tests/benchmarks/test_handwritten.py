"""What the engine is measured against must itself be right: the statements by hand agree with the oracle."""

import pytest

from facts.loading import load
from facts.wire import Fact
from policy.active import Caller
from policy.values import Value
from tests.benchmarks.allowed import BROUGHT, FACTS, allowed_with
from tests.benchmarks.engine import Sample, by_hand
from tests.benchmarks.handwritten import QUESTIONS
from tests.sampling import some


@pytest.mark.parametrize("brings_facts", [False, True])
@pytest.mark.parametrize("question", some(QUESTIONS, 12), ids=lambda question: question.name)
def test_a_statement_by_hand_is_right(environment, question, brings_facts):
    load(environment.id, enumerate(Fact(*each) for each in FACTS))
    allowed = allowed_with(question.brought if brings_facts else "")
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
