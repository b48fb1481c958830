"""One order on both sides: that of bytes in UTF-8."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localsql.sync.run import OutOfOrder, RowIds, brought_in_order, in_order

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
ROWS = st.lists(st.tuples(TEXTS, TEXTS), max_size=60)


def by_bytes(row: RowIds) -> list[bytes]:
    return [each.encode() for each in row]


@given(ROWS)
def test_rows_are_brought_into_the_order_of_their_bytes(rows):
    found = list(brought_in_order(rows))
    assert found == sorted(set(rows), key=by_bytes)
    assert list(in_order(found)) == found


def test_nothing_and_rows_without_columns():
    assert list(brought_in_order([])) == []
    assert list(brought_in_order([(), ()])) == [()]
    assert list(in_order([(), ()])) == [()]


def test_what_is_out_of_order_is_noticed():
    assert list(in_order([("a",), ("a",), ("b",)])) == [("a",), ("b",)]
    with pytest.raises(OutOfOrder):
        list(in_order([("b",), ("a",)]))


@pytest.mark.long
def test_sorting_holds_little_in_memory():
    rows = ((f"user-{number * 999_983 % 600_000:08}", "member") for number in range(600_000))
    tracemalloc.start()
    assert sum(1 for _ in brought_in_order(rows)) == 600_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60_000_000
