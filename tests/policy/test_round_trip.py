"""Printing and parsing are inverse, and nothing that resembles a policy breaks the parser."""

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.language import parse
from policy.language.parser import CONTEXTUAL
from policy.language.source import PolicyRejected, Source
from tests.policy.conftest import cases
from tests.policy.random_trees import policies, reserved
from tests.policy.trees import print_policy

DECISIONS = Path(__file__).parent.parent / "cases" / "decisions.json"
TEXTS = [case.read_bytes().decode() for folder in ("ast", "syntax_rejected") for case in cases(folder)]
TEXTS = [text for text in TEXTS if len(text) < 3000]
PIECES = st.one_of(
    st.sampled_from([*"()[]{},;:=<>!?@#.\"\\'+-*/&|$\n\0\ud800\u202e", '"x"', "3", "1.5", "::", "?=", "matches!", "é"]),
    st.sampled_from([f" {word} " for word in (*reserved, *CONTEXTUAL, "role", "x")]),
    st.text(max_size=3),
)
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@unhurried
@given(policies)
def test_a_printed_policy_parses_to_the_same_tree(policy):
    printed = print_policy(policy)
    assert parse(Source(printed)) == policy
    assert print_policy(parse(Source(printed))) == printed


@settings(unhurried, max_examples=500)
@given(st.data())
def test_a_mutated_policy_ends_in_a_tree_or_a_problem_with_a_place(data):
    text = data.draw(st.sampled_from(TEXTS))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(PIECES) + text[end:]
    _check(text)


@settings(unhurried, max_examples=200)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_pieces_end_in_a_tree_or_a_problem_with_a_place(text):
    _check(text)


def _check(text: str) -> None:
    source = Source(text)
    try:
        policy = parse(source)
    except PolicyRejected as rejected:
        assert rejected.problems
        for problem in rejected.problems:
            line, column = source.position(problem.span.start)
            assert 1 <= line <= text.count("\n") + 1
            assert 1 <= column <= len(source.line_text(line)) + 2
            assert f":{line}:{column}: " in problem.describe(source)
        assert rejected.message.encode()
    else:
        assert parse(Source(print_policy(policy))) == policy


def test_the_policies_of_the_decision_cases_go_there_and_back():
    texts = {case["policy"] for case in json.loads(DECISIONS.read_bytes())}
    assert len(texts) > 50
    for text in texts:
        policy = parse(Source(text))
        assert policy.items
        assert parse(Source(print_policy(policy))) == policy
