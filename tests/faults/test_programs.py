"""The programs of this folder, for a moment each: what they show in hours, they show in seconds, too.

But for times: what else the machine does is on them. Each runs over the database that asks more of what it shows, and
over both where each of them has a way of its own; the programs themselves take either.
"""

import pytest

from tests.faults import ceilings, growth, hostile, kills, overload, rolling, soak, stopping, supervision
from tests.faults.marks import Mark
from tests.faults.worlds import KINDS, world

pytestmark = pytest.mark.long
on_each = pytest.mark.parametrize("kind", KINDS)
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])
on_postgresql = pytest.mark.parametrize("kind", ["postgres"])


def missed(marks: list[Mark]) -> list[Mark]:
    """Of those that count what must not be."""
    return [each for each in marks if each.wanted.startswith("none") and not each.is_met]


@on_each
def test_a_server_that_is_told_to_stop_loses_no_request(kind):
    with world(kind) as place:
        assert missed(stopping.marks([stopping.stopped(place, 0.5, turn) for turn in range(2)])) == []


@on_postgresql
def test_restarts_one_after_the_other_fail_no_request(kind):
    with world(kind) as place:
        assert missed(rolling.marks(rolling.rolled(place, 1))) == []


@on_sqlite
def test_a_killed_server_loses_nothing(kind):
    with world(kind) as place:
        assert missed(kills.marks(*kills.killed(place, 1))) == []


@on_sqlite
def test_killed_workers_are_replaced_and_the_others_answer(kind):
    with world(kind) as place:
        assert missed(supervision.marks(supervision.supervised(place, 4, 1))) == []


@on_postgresql
def test_more_than_can_be_answered_is_answered_or_told_to_come_again(kind):
    with world(kind) as place:
        assert missed(overload.marks(overload.overloaded(place, 2, "1", calm=1))) == []


@on_postgresql
def test_what_goes_on_for_long_goes_on_right(kind):
    with world(kind) as place:
        assert missed(soak.marks(soak.soaked(place, 2))) == []


@on_sqlite
def test_a_question_that_is_too_hard_fails_alone(kind):
    with world(kind) as place:
        assert missed(hostile.marks(hostile.attacked(place, 2))) == []


@on_each
def test_what_is_repeated_leaves_nothing(kind):
    shares = {"policies": 0.5, "context facts": 0.2, "polls": 0.3}
    if kind == "sqlite":
        shares["cut bodies"] = 0.3  # which no database is asked about
    with world(kind) as place, growth.measured(place) as running:
        for what, share in shares.items():
            assert [each for each in growth.marks(growth.grown(running, what, share, 3)) if not each.is_met] == [], what


@on_each
def test_what_would_take_gigabytes_is_refused(kind):
    with world(kind) as place:
        found = ceilings.attacked(place, size=1_500, chain=200, at_once=3, STATEMENT_TIMEOUT="3")
        assert [each for each in ceilings.marks(found) if not each.is_met] == []


@on_sqlite
def test_with_little_address_space_answers_are_right(kind):
    """Each process has some 400 MB when it begins: see `ceilings`."""
    limits = ceilings.Limits(address_space=600)
    with world(kind) as place:
        found = ceilings.attacked(place, size=1_200, chain=150, at_once=3, limits=limits, STATEMENT_TIMEOUT="1")
        assert [each for each in ceilings.marks_of_limits(found) if not each.is_met] == []
