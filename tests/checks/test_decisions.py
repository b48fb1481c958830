"""Every generated case is answered as the brute-force evaluation answered it."""

import json
from pathlib import Path

import pytest

from tests.checks.decisions import play
from tests.sampling import some

CASES = json.loads((Path(__file__).parent.parent / "cases" / "decisions.json").read_text())


@pytest.mark.parametrize("case", some(CASES, 16), ids=lambda case: str(case["seed"]))
def test_every_question_of_the_case_has_its_answer(api, case):
    wrong = play(api, case)
    assert not wrong, wrong[:3]
