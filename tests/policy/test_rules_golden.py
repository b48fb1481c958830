"""Accepted policies beside the rules, types and signatures that they mean; refused ones beside every problem."""

import pytest

from policy.language.source import PolicyRejected, Source
from policy.rules import compile_source
from tests.policy.conftest import cases
from tests.policy.rules_text import rules_text
from tests.sampling import together


@together("case", cases("rules"))
def test_a_policy_means_these_rules(case, golden):
    golden(case, rules_text(compile_source(Source(case.read_text(), case.name))))


@together("case", cases("rejected"))
def test_a_policy_is_refused_with_these_problems(case, golden):
    with pytest.raises(PolicyRejected) as refused:
        compile_source(Source(case.read_text(), case.name))
    golden(case, "\n".join(refused.value.descriptions) + "\n")
