"""Work for a bounded number of threads."""

import threading
import time
import weakref
from queue import Empty, SimpleQueue

import pytest

from authz_project.server import workers as slots_module
from authz_project.server.workers import KNOWN_FIRST, CheckThreads
from policy.core import journal, threads


def until(is_so) -> None:
    latest = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < latest
        time.sleep(0.001)


def test_no_more_threads_work_than_there_are_slots():
    assert_no_more_than(2, CheckThreads(2))


def assert_no_more_than(count: int, slots: CheckThreads) -> None:
    lock, done, working, most = threading.Lock(), SimpleQueue(), 0, 0

    def work(number: int) -> None:
        nonlocal working, most
        with lock:
            working += 1
            most = max(most, working)
        time.sleep(0.01)
        with lock:
            working -= 1
        done.put(number)

    threads = [threading.Thread(target=slots.known.do, args=(work, number)) for number in range(20)]
    for thread in threads:
        thread.start()
    assert sorted(done.get(timeout=10) for _ in range(20)) == list(range(20))
    assert most == count


def test_work_that_fails_costs_no_slot(caplog):
    slots, done = CheckThreads(1), SimpleQueue()
    for _ in range(3):
        slots.known.do(lambda: 1 / 0)
    slots.known.do(done.put, "after")
    assert done.get(timeout=10) == "after" and caplog.text.count("request failed") == 3


def test_the_thread_that_worked_last_is_the_next():
    slots, threads = CheckThreads(3), SimpleQueue()
    for _ in range(20):
        slots.known.do(lambda: threads.put(threading.get_ident()))
        until(lambda: slots.busy == 0)
    assert len({threads.get(timeout=10) for _ in range(20)}) == 1


def test_long_work_keeps_no_slot(monkeypatch):
    """As long as there are more threads for those who wait."""
    slots, done, end = CheckThreads(2, more=2), SimpleQueue(), threading.Event()
    for _ in range(3):
        slots.known.do(end.wait)
    slots.known.do(done.put, "quick")
    assert done.get(timeout=10) == "quick"
    for _ in range(3):
        slots.known.do(end.wait)
    slots.known.do(done.put, "last")
    with pytest.raises(Empty):
        done.get(timeout=1)
    end.set()
    assert done.get(timeout=10) == "last"
    monkeypatch.setattr(slots_module, "LONG", 1000.0)
    assert_no_more_than(2, slots)


def test_work_waits_where_no_thread_can_be_had(monkeypatch, caplog):
    """For those that there are; where there are none, it is said to be not done, and is never done later."""
    monkeypatch.setattr(threads, "_told_at", float("-inf"))  # another test may have had none, just before
    slots, done, end = CheckThreads(3), SimpleQueue(), threading.Event()
    start = threading.Thread.start

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert not slots.known.do(done.put, "refused") and slots.waiting == 0
    monkeypatch.setattr(threading.Thread, "start", start)
    assert slots.known.do(end.wait)
    monkeypatch.setattr(threading.Thread, "start", fail)
    assert slots.known.do(done.put, "later") and slots.waiting == 1
    end.set()
    assert done.get(timeout=10) == "later"
    monkeypatch.setattr(threading.Thread, "start", start)
    assert_no_more_than(3, slots)
    assert done.empty() and "cannot start a thread" in caplog.text


def test_what_was_worked_at_is_let_go_of():
    """Granian takes a connection for in use as long as somebody has its request."""

    class Request:
        pass

    slots, done = CheckThreads(1), SimpleQueue()
    request = Request()
    seen = weakref.ref(request)
    slots.known.do(lambda asked: done.put("done"), request)
    del request
    assert done.get(timeout=10) == "done"
    until(lambda: seen() is None)


def test_who_takes_longer_than_most_lets_another_begin_at_once(monkeypatch):
    monkeypatch.setattr(slots_module, "LONG", 1000)
    slots, order, more = CheckThreads(2, at_once=1), SimpleQueue(), threading.Event()

    def first() -> None:
        order.put("first")
        journal.give_up_slot()
        journal.give_up_slot()  # it has none any more
        more.wait(60)
        order.put("first again")

    slots.known.do(first)
    for name in ("second", "third"):
        slots.known.do(order.put, name)
    assert [order.get(timeout=60) for _ in range(3)] == ["first", "second", "third"]
    more.set()
    assert order.get(timeout=60) == "first again"
    until(lambda: not slots.busy)
    assert_no_more_than(1, slots)


def test_as_many_give_up_their_slot_as_there_are_threads(monkeypatch):
    monkeypatch.setattr(slots_module, "LONG", 1000)
    slots, begun, more = CheckThreads(2, more=1, at_once=1), SimpleQueue(), threading.Event()

    def long() -> None:
        begun.put("begun")
        journal.give_up_slot()
        more.wait(60)

    for _ in range(5):
        slots.known.do(long)
    assert [begun.get(timeout=60) for _ in range(3)] == ["begun"] * 3  # the slot, and two that were given up
    assert (slots.busy, slots.waiting) == (3, 2)
    more.set()
    assert [begun.get(timeout=60) for _ in range(2)] == ["begun"] * 2


def test_outside_of_slots_nobody_has_a_slot_to_give_up():
    journal.give_up_slot()


def test_guests_neither_fill_the_queue_of_known_callers_nor_starve(monkeypatch):
    monkeypatch.setattr("authz_project.server.workers.BURST", 1e-9)
    slots, order, end = CheckThreads(1), SimpleQueue(), threading.Event()
    slots.known.do(end.wait)
    while slots.guests.do(order.put, "guest"):
        pass
    assert slots.guests.is_crowded and not slots.known.is_crowded
    for number in range(2 * KNOWN_FIRST + 1):
        assert slots.known.do(order.put, number)
    waiting = slots.waiting
    end.set()
    done = [order.get(timeout=10) for _ in range(waiting)]
    assert done[: 2 * KNOWN_FIRST + 3] == [
        *range(KNOWN_FIRST), "guest", *range(KNOWN_FIRST, 2 * KNOWN_FIRST), "guest", 2 * KNOWN_FIRST,
    ]  # fmt: skip
    assert set(done[2 * KNOWN_FIRST + 3 :]) == {"guest"}
