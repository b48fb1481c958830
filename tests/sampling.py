"""Some of many like cases on every day, and the others where what is long runs too: `pytest -m long`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps

import pytest

AT_ONCE = 40  # seeds of one test item


def some(cases: Iterable[object], every: int) -> list[object]:
    """All cases; of each `every` the first is for every day.

    some("abcd", 2) → a, c, and as long ones b, d
    """
    return [pytest.param(case, marks=pytest.mark.long) if place % every else case for place, case in enumerate(cases)]


def seeds(numbers: Sequence[int], every: int = 1) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test with each number as its `seed`, many in one item. Of each `every` the first is for every day."""
    parts = [pytest.param(numbers[::every], id="some")]
    others = [number for place, number in enumerate(numbers) if place % every]
    parts += [
        pytest.param(others[start : start + AT_ONCE], marks=pytest.mark.long, id=f"others from {others[start]} on")
        for start in range(0, len(others), AT_ONCE)
    ]

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def of_each(*given: object, seed: Sequence[int], **fixtures: object) -> None:
            for number in seed:
                try:
                    test(*given, seed=number, **fixtures)
                except BaseException as error:
                    error.add_note(f"seed = {number}")
                    raise

        return pytest.mark.parametrize("seed", parts)(of_each)

    return decorated
