"""What clients notice of workers and parents that are killed; `supervision.py` for a few seconds."""

from tests.faults import supervision
from tests.faults.worlds import world

ENDS_WITHIN = 30  # seconds; two where nobody else uses the machine, which `supervision.py` holds


def test_workers_that_are_killed_in_quick_succession_are_replaced_and_the_others_answer():
    """Each worker dies once, as soon as both are there."""
    with world("sqlite") as place:
        found = supervision.supervised(place, seconds=2, every=0)
    assert [each for each in supervision.marks(found) if not each.is_met] == []


def test_workers_end_with_their_parent_and_the_port_is_free():
    with world("sqlite") as place:
        found = supervision.orphaned(place)
    assert found.seconds < ENDS_WITHIN
    assert (found.wrong, found.lost) == (0, 0) and found.told
