"""Who waits in line for a thread, and who is told to come again."""

import threading
from queue import SimpleQueue

import pytest

from authz_project.server import line as line_module
from authz_project.server.changes import Changes
from authz_project.server.line import SHORT, Line
from authz_project.server.slots import Slots

MANY = 100


@pytest.fixture
def clock(monkeypatch):
    """Stands still, but for who sets it."""
    now = [100.0]
    monkeypatch.setattr(line_module.time, "monotonic", lambda: now[0])
    return now


def test_a_burst_may_be_long(clock):
    line = Line(3)
    for waiting in range(1, MANY):
        assert line.takes(waiting - 1)
        line.note(waiting)


def test_a_line_that_stands_is_kept_short_until_it_was_empty(clock, settings):
    settings.PATIENCE = 1
    line = Line(3)
    line.note(1)
    clock[0] += 0.9
    assert line.takes(MANY)
    clock[0] += 0.2
    assert not line.takes(MANY) and not line.takes(3 * SHORT) and line.takes(3 * SHORT - 1)
    line.note(3 * SHORT - 1)
    assert not line.takes(MANY), "shorter is not empty"
    line.note(0)
    line.note(1)
    assert line.takes(MANY)


def test_patience_may_have_no_end(clock, settings):
    settings.PATIENCE = 0
    line = Line(1)
    line.note(1)
    clock[0] += 1_000_000
    assert line.takes(MANY)


@pytest.mark.parametrize("make", [lambda: Slots(1), lambda: Changes(1, 1)])
def test_who_is_not_taken_is_told_and_others_are_done_in_order(make, settings):
    settings.PATIENCE = 1e-9
    threads, done, end = make(), SimpleQueue(), threading.Event()
    assert threads.do(end.wait)
    taken = [number for number in range(MANY) if threads.do(done.put, number)]
    assert SHORT <= len(taken) <= SHORT + 1 and taken == list(range(len(taken)))
    end.set()
    assert [done.get(timeout=10) for _ in taken] == taken
    done.put("empty")
    assert threads.do(done.put, "after") and done.get(timeout=10) == "empty" and done.get(timeout=10) == "after"
