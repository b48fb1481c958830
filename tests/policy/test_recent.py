"""A cache that has room for so much: what is used stays, whatever else comes and goes, in many threads at once."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from policy.core.memory import Recent


def test_the_oldest_that_was_not_used_is_evicted():
    found: Recent[str, str] = Recent(4)
    for key in "abcd":
        found.store(key, key.upper())
    assert found.get("a") == "A"  # which is now newer than c and d
    found.store("e", "E")
    assert [found.get(key) for key in "abe"] == ["A", None, "E"]
    assert len(found) <= 4


def test_what_is_used_in_between_stays():
    found: Recent[int, int] = Recent(10)
    found.store(-1, -1)
    for number in range(1000):
        assert found.get(-1) == -1
        found.store(number, number)
    stayed = [number for number in range(1000) if number in found.newer or number in found._older]
    assert 4 <= len(stayed) <= 9 and stayed == [*range(1000 - len(stayed), 1000)]


def test_what_was_used_once_does_not_stay_for_good():
    found: Recent[int, int] = Recent(10)
    for number in range(10):
        found.store(number, number)
        found.get(number)
    for number in range(10, 30):
        found.store(number, number)
    assert not any(found.get(number) for number in range(10))


def test_values_have_weights():
    """What is heavier than a generation is alone in its own, and leaves no more than the limit in all."""
    found: Recent[str, str] = Recent(10, lambda key, value: len(value))
    for key, value in (("a", "x" * 4), ("b", "x" * 4), ("a", "x" * 3), ("c", "x" * 1)):
        found.store(key, value)
    assert [found.get(key) for key in "abc"] == ["x" * 3, "x" * 4, "x" * 1]
    found.store("d", "x" * 5)
    assert found.get("d") == "x" * 5 and total(found) <= 10
    with pytest.raises(AssertionError):
        found.store("e", "x" * 11)
    for size in (7, 10, 1, 6, 4, 9, 2, 3):
        found.store(f"size {size}", "x" * size)
        assert found.get(f"size {size}") is not None and total(found) <= 10


def total(found: Recent[str, str]) -> int:
    return sum(map(len, (*found.newer.values(), *found._older.values())))


def test_what_is_dropped_leaves_room():
    found: Recent[str, str] = Recent(2)
    for key in "ab":
        found.store(key, key)
    found.drop("a")
    found.drop("nothing")
    found.store("c", "c")
    assert [found.get(key) for key in "abc"] == [None, "b", "c"]
    found.clear()
    assert len(found) == 0
    for key in "de":
        found.store(key, key)
    assert [found.get(key) for key in "de"] == ["d", "e"]


def test_many_threads_use_one():
    """Each sees under a key what was stored under it or nothing, and the room is never exceeded."""
    found: Recent[int, str] = Recent(50)

    def work(seed: int) -> int:
        wrong = 0
        for turn in range(3000):
            key = (seed * 7919 + turn * 31) % 120
            value = found.get(key)
            wrong += value not in (None, str(key)) or len(found) > 50
            if value is None:
                found.store(key, str(key))
            if turn % 500 == seed:
                found.clear()
            if turn % 70 == seed:
                found.drop(key)
        return wrong

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(work, range(8))) == 0
    finally:
        sys.setswitchinterval(usual)
    assert found._weight == len(found.newer) <= 25 and len(found) <= 50
