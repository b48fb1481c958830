"""Cases that one test item has all of."""

import inspect

import pytest

from tests.sampling import together

NUMBERS = [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_each_case_is_called_and_all_that_fail_are_told():
    met = []

    @together("number, text", NUMBERS)
    def odd(number, text, fixture):
        met.append((number, text, fixture))
        assert number != 2
        if number == 3:
            pytest.fail("three")

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases fail") as told:
        odd(fixture="f")
    assert met == [(*each, "f") for each in NUMBERS]
    assert [error.__notes__ for error in told.value.exceptions] == [
        ["number, text = (2, 'b')"], ["number, text = (3, 'c')"],
    ]  # fmt: skip


def test_one_argument_is_the_case_itself_and_the_others_are_fixtures():
    met = []

    @together("case", [(1, 2), (3, 4)], told=str)
    def seen(service, case):
        met.append(case)

    seen(service=None)
    assert met == [(1, 2), (3, 4)] and list(inspect.signature(seen).parameters) == ["service"]
