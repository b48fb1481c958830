"""Rows of guarded exits -> answers: "every value" only where it is every value; a refusal where it is all but some."""

from itertools import product
from random import Random

import pytest

from checks.engine.compile import GROUNDED, UNGUARDED, answers_of
from checks.errors import CannotEnumerate

OTHERS = ("x", "y")  # ids that no row names
NAMED = ("a", "b", "c")


def granted(exit: int, *columns: str | None) -> tuple:
    return (str(exit), 1, *columns)


def withheld(exit: int, *columns: str | None) -> tuple:
    return (str(exit), 0, *columns)


def grounded(*columns: str | None) -> tuple:
    return (GROUNDED, 1, *columns)


def plain(*columns: str | None) -> tuple:
    return (UNGUARDED, 1, *columns)


@pytest.mark.parametrize(
    "rows, answers",
    [
        ([granted(1, "")], [(None,)]),
        ([granted(1, ""), granted(1, "bob")], [(None,)]),
        ([withheld(1, ""), granted(1, "bob")], [("bob",)]),
        ([granted(1, ""), withheld(1, "bob"), plain("bob")], [("bob",), (None,)]),
        ([granted(1, ""), withheld(1, "bob"), granted(2, ""), granted(2, "ann")], [(None,)]),
        ([granted(1, "", None), withheld(1, "bob", None), plain("bob", None)], [("bob", None), (None, None)]),
        ([granted(1, "", ""), withheld(1, "bob", ""), plain("bob", "")], [("bob", ""), (None, None)]),  # asked about ''
        ([granted(1, "", None), withheld(1, "bob", None),
          plain("bob", "read"), granted(2, "bob", ""), withheld(2, "bob", "read")],
         [("bob", "read"), ("bob", None), (None, None)]),
    ],
)  # fmt: skip
def test_every_value_is_answered_where_rows_grant_it_together(rows, answers):
    assert sorted(answers_of(rows), key=str) == sorted(answers, key=str)


@pytest.mark.parametrize(
    "rows, answers",
    [
        ([plain(None), grounded("r0"), grounded("bob")], [(None,)]),
        ([plain(None), plain("bob"), grounded("bob")], [("bob",), (None,)]),
        ([plain(None, "read"), grounded("bob", "read"), grounded("bob", "write")], [("bob", "write"), (None, "read")]),
        ([plain(None, "read"), grounded(None, "read"), grounded(None, None)], [(None, "read"), (None, None)]),
        ([granted(1, ""), grounded("bob")], [(None,)]),
        ([grounded("bob")], [("bob",)]),
    ],
)
def test_ids_that_are_tried_one_by_one_are_left_out_beside_every_value(rows, answers):
    assert sorted(answers_of(rows), key=str) == sorted(answers, key=str)


@pytest.mark.parametrize(
    "rows, missing",
    [
        ([granted(1, ""), withheld(1, "bob")], "bob"),
        ([granted(1, "", "k"), withheld(1, "bob", "k"), plain("bob", "other")], "bob"),
        # each grants a part of what the other one keeps back, and none the rest of it
        ([granted(1, "", None), withheld(1, "bob", None), granted(2, None, ""), withheld(2, None, "read")], "bob"),
        ([granted(1, "", None), withheld(1, "bob", None), plain("bob", "read")], "bob"),
        ([granted(1, ""), withheld(1, "ann"), granted(2, ""), withheld(2, "ann")], "ann"),
        # asked about '' and "a": what is granted on the one is not granted on the other
        ([granted(1, "a", ""), withheld(1, "a", "bob"), plain("", "bob")], "bob"),
    ],
)
def test_every_value_but_some_is_refused(rows, missing):
    with pytest.raises(CannotEnumerate, match=f"such as `{missing}`|such as `read`"):
        answers_of(rows)


def random_rows(rng: Random, width: int) -> list[tuple]:
    """Rows as statements give them: those of an exit combine the ids that its guards tell apart, and '' for others."""
    rows = [plain(*(rng.choice((*NAMED, None)) for _ in range(width))) for _ in range(rng.randrange(3))]
    for number in range(1, rng.randint(1, 3) + 1):
        columns = []
        for _ in range(width):
            told_apart = ("", *rng.sample(NAMED, rng.randint(0, 2)))
            columns.append(rng.choice([(None,), (rng.choice(NAMED),), told_apart, told_apart]))
        share = rng.choice((0.5, 0.8, 0.95))
        rows += [(str(number), int(not any(row) or rng.random() < share), *row) for row in product(*columns)]
    return rows


def meant(rows: list[tuple], width: int) -> set[tuple]:
    """All that the rows grant, of ids that are named and a few that are not."""
    found = set()
    for number, outcome, *row in rows:
        mine = [each[2:] for each in rows if each[0] == number]
        named = [{each[index] for each in mine} for index in range(width)]
        if outcome:
            wide = [{None: {*NAMED, *OTHERS}, "": {*NAMED, *OTHERS} - named[index]} for index in range(width)]
            found |= set(product(*(wide[index].get(text, {text}) for index, text in enumerate(row))))
    return found


@pytest.mark.parametrize("width", [1, 2, 3])
def test_answers_of_random_rows_are_what_the_rows_grant(width):
    refused = 0
    for seed in range(1_500):
        rows = random_rows(Random(seed), width)
        grants = meant(rows, width)
        opened = [[UNGUARDED, 1, *(text or None for text in row)] for _, outcome, *row in rows if outcome]
        is_list = meant(opened, width) == grants
        try:
            found = answers_of(rows)
        except CannotEnumerate:
            refused += 1
            assert not is_list, (seed, rows)
        else:
            assert is_list, (seed, rows)
            assert meant([plain(*row) for row in found], width) == grants, (seed, rows)
    assert refused > 50
