"""Some of many like cases on every day, and the others where what is long runs too: `pytest -m long`.

The first ones run over each database, and of the others, one half over SQLite and one half over PostgreSQL.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps

import pytest

AT_ONCE = 40  # seeds of one test item


def some(cases: Iterable[object], every: int) -> list[object]:
    """All cases; of each `every` the first is for every day.

    some("abcd", 2) → a, c, and as long ones b, d
    """
    return [_long(case, place - place // every) if place % every else case for place, case in enumerate(cases)]


def in_turns(cases: Iterable[object]) -> list[object]:
    """All cases, each over one database alone: the first over SQLite, the next over PostgreSQL."""
    return [pytest.param(case, marks=pytest.mark.in_turn(place)) for place, case in enumerate(cases)]


def seeds(numbers: Sequence[int], every: int = 1) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test with each number as its `seed`, many in one item. Of each `every` the first is for every day."""
    parts = [pytest.param(numbers[::every], id="some")]
    others = [number for place, number in enumerate(numbers) if place % every]
    for turn in range(2):
        half = others[turn::2]
        for start in range(0, len(half), AT_ONCE):
            parts.append(_long(half[start : start + AT_ONCE], turn, f"others from {half[start]} on"))

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


def together(
    names: str, cases: Iterable[object], told: Callable[[object], str] = repr
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test with each case in one item, and tell all that fail. Its fixtures are set up once, for all of them.

    Like `pytest.mark.parametrize`, for cases that leave nothing behind which another one meets.
    """
    arguments = [name.strip() for name in names.split(",")]
    given = [(case, case if len(arguments) > 1 else (case,)) for case in cases]

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def of_each(*positional: object, **fixtures: object) -> None:
            failed = []
            for case, values in given:
                try:
                    test(*positional, **fixtures, **dict(zip(arguments, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"{names} = {told(case)}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(given)} cases fail", failed)

        signature = inspect.signature(test)
        fixtures = [each for each in signature.parameters.values() if each.name not in arguments]
        of_each.__signature__ = signature.replace(parameters=fixtures)
        return of_each

    return decorated


def _long(case: object, turn: int, name: str | None = None) -> object:
    """Return a long case, which runs over one database alone: `conftest` takes it for that whose turn it is."""
    return pytest.param(case, marks=[pytest.mark.long, pytest.mark.in_turn(turn)], id=name)
