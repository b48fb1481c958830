"""The conversations that published clients have with a service, against the running one."""

import json

from tests.conversation import play
from tests.sampling import together
from tests.service import ROOT

CASES = json.loads((ROOT / "tests" / "cases" / "wire.json").read_text())["cases"]


@together("case", CASES, told=lambda case: case["name"])
def test_the_conversation_goes_as_it_should(service, case):
    play(service, case)
