"""Some of many like cases on every day, and the others where what is long runs too: `pytest -m long`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def some(cases: Iterable[object], every: int) -> list[object]:
    """All cases; of each `every` the first is for every day.

    some("abcd", 2) → a, c, and as long ones b, d
    """
    return [pytest.param(case, marks=pytest.mark.long) if place % every else case for place, case in enumerate(cases)]
