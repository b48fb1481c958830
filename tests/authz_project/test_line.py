"""Who waits in line for a thread, who is told to come again, and when."""

import threading
import time
from queue import SimpleQueue

import pytest

from authz_project.server import workers as line_module
from authz_project.server.workers import (
    KEPT_FOR,
    LINE_LENGTH,
    SHORT,
    ChangeThreads,
    CheckThreads,
    DelayedRejections,
    WaitingLine,
)

MANY = 100


@pytest.fixture
def clock(monkeypatch):
    """Stands still, but for who sets it."""
    now = [100.0]
    monkeypatch.setattr(line_module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def line(clock):
    return WaitingLine(3)


def test_a_burst_may_be_long(line):
    for waiting in range(1, MANY):
        assert line.takes(waiting - 1)
        line.note(waiting)


def test_a_long_line_is_kept_short_once_it_has_been_so_for_long(line, clock):
    line.note(MANY)
    clock[0] += 0.5
    assert line.takes(MANY)
    clock[0] += 0.5
    assert not line.takes(MANY) and not line.takes(3 * SHORT)
    assert line.takes(3 * SHORT - 1)


def test_that_it_is_empty_now_and_then_changes_nothing(line, clock):
    """Clients that wait for their answers come in waves."""
    for _ in range(20):
        line.note(MANY)
        clock[0] += 0.08
        line.note(0)
        clock[0] += 0.02
    assert not line.takes(MANY)


def test_a_line_that_is_not_long_may_stand(line, clock):
    """As it does where a few clients more than there are threads ask as fast as they are answered."""
    line.note(3 * LINE_LENGTH - 1)
    clock[0] += 100
    assert line.takes(3 * LINE_LENGTH - 1)


def test_bursts_that_pass_are_taken_for_ever(line, clock):
    for _ in range(1_000):
        line.note(MANY)
        assert line.takes(MANY)
        clock[0] += 0.3
        line.note(0)
        clock[0] += 0.7


def test_it_is_kept_short_for_a_while_and_then_tried(line, clock):
    line.note(MANY)
    clock[0] += 2
    assert not line.takes(MANY)
    line.note(0)
    clock[0] += 0.9
    assert not line.takes(3 * SHORT)
    clock[0] += 0.2
    assert line.takes(3 * LINE_LENGTH - 1), "whether it is long again shows when it is"
    assert not line.takes(3 * LINE_LENGTH)


def test_what_is_long_again_at_once_is_kept_short_for_twice_as_long(line, clock):
    line.note(MANY)
    clock[0] += 2
    lasted = []
    for _ in range(8):
        begun = clock[0]
        assert not line.takes(3 * LINE_LENGTH)
        while not line.takes(3 * SHORT):
            clock[0] += 0.125
        lasted.append(clock[0] - begun)
    assert lasted == [1, 2, 4, 8, 16, 16, 16, 16]


def test_it_ends_with_the_overload(line, clock):
    """Though at usual times, too, some stand in line at some moment of each second."""
    line.note(MANY)
    clock[0] += 2
    assert not line.takes(MANY)
    clock[0] += 1
    for _ in range(1_000):
        line.note(3 * LINE_LENGTH - 1)
        clock[0] += 0.1
        assert line.takes(3 * LINE_LENGTH - 1)
        line.note(0)
    line.note(MANY)
    assert line.takes(MANY), "a burst, long after"


@pytest.mark.parametrize(
    "make", [lambda: CheckThreads(1).known, lambda: CheckThreads(1).guests, lambda: ChangeThreads(1, 1)]
)
def test_who_is_not_taken_is_told_and_others_are_done_in_order(make, monkeypatch):
    monkeypatch.setattr("authz_project.server.workers.BURST", 1e-9)
    threads, done, end = make(), SimpleQueue(), threading.Event()
    assert threads.do(end.wait)
    taken = [number for number in range(MANY) if threads.do(done.put, number)]
    assert LINE_LENGTH <= len(taken) <= LINE_LENGTH + 2 and taken == list(range(len(taken)))
    assert threads.is_crowded
    end.set()
    assert [done.get(timeout=10) for _ in taken] == taken
    assert not threads.is_crowded
    done.put("empty")
    assert threads.do(done.put, "after") and done.get(timeout=10) == "empty" and done.get(timeout=10) == "after"


def test_who_is_to_come_again_is_told_in_a_moment_and_in_order():
    refusals, told = DelayedRejections(), SimpleQueue()
    began = time.monotonic()
    for number in range(MANY):
        refusals.send_later(lambda number=number: told.put((number, time.monotonic())))
    refusals.send_later(lambda: 1 / 0)
    refusals.send_later(lambda: told.put((MANY, time.monotonic())))
    found = [told.get(timeout=10) for _ in range(MANY + 1)]
    assert [number for number, _ in found] == list(range(MANY + 1))
    assert min(at for _, at in found) >= began + KEPT_FOR


def test_not_all_are_kept(monkeypatch):
    monkeypatch.setattr("authz_project.server.workers.KEPT_AT_ONCE", 1)
    refusals, told = DelayedRejections(), SimpleQueue()
    refusals.send_later(lambda: told.put("kept"))
    refusals.send_later(lambda: told.put("at once"))
    assert told.get(timeout=10) == "at once" and told.get(timeout=10) == "kept"
