"""Which tests each process runs, where several do: modules that take long are dealt out first, each of them whole.

xdist cuts the list of tests into one part for each process, and has whoever is done take from the end of what another
one still has to do. So each part begins with some of the modules that have long tests, whose servers and browsers are
then started once, and ends with quick tests, which anybody may take.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

Test = TypeVar("Test")


def processes() -> int:
    """How many run tests."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def dealt(
    tests: list[Test], module: Callable[[Test], object], is_long: Callable[[Test], bool], many: int
) -> list[Test]:
    """Order them so that each of so many processes gets modules with long tests first, and then quick ones."""
    modules: dict[object, list[Test]] = {}
    for test in tests:
        modules.setdefault(module(test), []).append(test)
    long = [each for each in modules.values() if any(map(is_long, each))]
    quick = chain.from_iterable(each for each in modules.values() if not any(map(is_long, each)))
    found: list[Test] = []
    over: Iterable[Test] = ()
    for place, size in enumerate(sizes(len(tests), many)):
        hand = chain(over, *long[place::many])
        part = list(islice(hand, size))
        found += [*part, *islice(quick, size - len(part))]
        over = list(hand)  # and goes to the next
    return [*found, *over]


def sizes(tests: int, many: int) -> Iterator[int]:
    """Say how many each process gets: what is left is divided evenly among those that have none yet."""
    for others in range(many, 0, -1):
        size = tests // others
        yield size
        tests -= size
