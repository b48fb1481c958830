"""Hard questions are planned or refused within the limit, and what is refused names a rule."""

import re

import pytest

from checks.errors import TooComplex
from tests.checks.hard_policies import policies
from tests.checks.in_memory import Engine
from tests.checks.plan_questions import question_of
from tests.yardstick import within

EVERY = [(each, question) for each in policies() for question in each.questions]
IDS = [f"{each.name}: {question}" for each, question in EVERY]
ORDINARY = [pair for pair in EVERY if "200 types" in pair[0].name]
SECONDS = 0.3
AT_ONCE = 0.5  # of a busy machine: alone it is less than half of that


@pytest.mark.parametrize(("hard", "question"), EVERY, ids=IDS)
def test_a_hard_question_is_planned_or_refused_in_time(hard, question):
    def planned(engine: Engine) -> None:
        shape, _ = engine.shape([question_of(question)[0]])
        try:
            engine.compiled_for(shape)
        except TooComplex as refused:
            line, rule = re.search(r"the rule at line (\d+), `(.*)`, combines", refused.message).groups()
            assert hard.text.splitlines()[int(line) - 1] == rule

    within(2 * SECONDS, planned, lambda: Engine(hard.text, patience=SECONDS))


@pytest.mark.parametrize(("hard", "question"), ORDINARY, ids=lambda each: each if isinstance(each, str) else "")
def test_an_ordinary_policy_of_200_types_is_planned_at_once(hard, question):
    def planned(engine: Engine):
        shape, _ = engine.shape([question_of(question)[0]])
        return engine.compiled_for(shape)

    assert within(AT_ONCE, planned, lambda: Engine(hard.text)).statement
