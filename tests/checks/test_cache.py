"""What is remembered: so much, the least lately used of it first let go, and each made by one of those who ask."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from checks.asking.limits import Deadline
from checks.asking.question import Cache
from checks.errors import QueryTooSlow


def test_what_was_used_least_lately_goes_first():
    found: Cache[str, str] = Cache(2)
    for key in ("first", "second"):
        found.made_once(key, key.upper)
    assert found.get("first") == "FIRST"
    found.made_once("third", "third".upper)
    assert [found.get(key) for key in ("first", "second", "third")] == ["FIRST", None, "THIRD"]
    assert len(found) == 2


def test_one_makes_what_many_ask_for():
    found: Cache[str, int] = Cache(10)
    made: list[int] = []

    def make() -> int:
        time.sleep(0.05)
        made.append(1)
        return len(made)

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: found.made_once("key", make), range(8)))
    assert (results, made) == ([1] * 8, [1])


def test_what_cannot_be_made_is_tried_again():
    found: Cache[str, int] = Cache(10)
    with pytest.raises(ZeroDivisionError):
        found.made_once("key", lambda: 1 // 0)
    assert found.get("key") is None
    assert found.made_once("key", lambda: 7) == 7


def test_nobody_waits_longer_than_the_question_may_take():
    found: Cache[str, int] = Cache(10)
    begun, done = threading.Event(), threading.Event()

    def make() -> int:
        begun.set()
        done.wait()
        return 1

    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(found.made_once, "key", make)
        begun.wait()
        with pytest.raises(QueryTooSlow), Deadline(0.05):
            found.made_once("key", lambda: 2)
        done.set()
        assert other.result() == found.get("key") == 1
