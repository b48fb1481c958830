"""The conversations that published clients have with a service, against the running one."""

import json

import pytest

from tests.conversation import play
from tests.service import ROOT

CASES = json.loads((ROOT / "tests" / "cases" / "wire.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_conversation_goes_as_it_should(service, case):
    play(service, case)
