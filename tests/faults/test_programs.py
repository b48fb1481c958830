"""The programs of this folder, for a moment each: what they show in hours, they show in seconds, too."""

import pytest

from tests.faults import rolling, stopping
from tests.faults.marks import printed
from tests.faults.worlds import KINDS, world

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_told_to_stop_loses_no_request(kind):
    with world(kind) as place:
        assert printed(stopping.marks([stopping.stopped(place, 0.5, turn) for turn in range(2)])) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_restarts_one_after_the_other_fail_no_request(kind):
    with world(kind) as place:
        assert printed(rolling.marks(rolling.rolled(place, 1))) == 0
