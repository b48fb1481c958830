"""The memory budget: who is counted, who is refused, who waits."""

import contextlib
import gc
import sqlite3
from weakref import ref

import pytest

from policy.core import memory
from policy.core.memory import (
    MEGABYTE,
    BodyAdmission,
    Budget,
    Holding,
    MemoryInUse,
    NeedsTooMuchMemory,
    allocated_by_sqlite,
)

MOST = 100 * MEGABYTE


class Gauge:
    """What SQLite has allocated, as a test says."""

    allocated = 7 * MEGABYTE  # before any statement: it belongs to no request

    def __call__(self) -> int:
        return self.allocated


@pytest.fixture
def gauge() -> Gauge:
    return Gauge()


@pytest.fixture
def budget(gauge) -> Budget:
    return Budget(MOST, gauge)


def test_the_memory_of_the_drivers_own_sqlite_is_told():
    connection = sqlite3.connect(":memory:")
    before = allocated_by_sqlite()
    connection.execute("CREATE TABLE kept AS SELECT zeroblob(8000000) AS x")
    assert 8_000_000 < allocated_by_sqlite() - before < 12_000_000
    connection.close()
    assert abs(allocated_by_sqlite() - before) < MEGABYTE


def test_a_request_that_takes_most_of_the_budget_is_told_to_ask_for_less(budget):
    asked = Holding()
    budget.count(asked, MOST)
    with pytest.raises(NeedsTooMuchMemory, match=r"MEMORY_BUDGET allows \(100 MB"):
        budget.count(asked, 1)
    budget.end(asked)
    assert budget.held == 0


def test_who_fetches_more_is_refused_and_what_is_fetched_already_is_answered(budget):
    done, late, small = Holding(), Holding(), Holding()
    budget.count(done, 70 * MEGABYTE)
    with pytest.raises(MemoryInUse):
        budget.count(late, 31 * MEGABYTE)
    budget.check(done)
    budget.count(small, MEGABYTE // 2)  # which makes no difference
    budget.end(late)
    budget.end(done)
    budget.count(Holding(), 90 * MEGABYTE)


def test_of_statements_that_run_the_largest_is_refused(budget, gauge):
    large, small = Holding(), Holding()
    for each in (large, small):
        budget.look(each)
    gauge.allocated += 60 * MEGABYTE
    budget.look(large)
    gauge.allocated += 30 * MEGABYTE
    budget.look(small)
    gauge.allocated += 20 * MEGABYTE
    budget.look(small)  # it passes the budget, and may go on
    with pytest.raises(NeedsTooMuchMemory):
        budget.look(large)
    gauge.allocated -= 60 * MEGABYTE
    assert budget.end_statement(large) == 60 * MEGABYTE
    budget.look(small)
    assert budget.held == 50 * MEGABYTE


def test_what_connections_keep_is_counted_for_no_statement(budget, gauge):
    gauge.allocated = 10 * MOST
    budget.look(Holding())
    assert budget.held == 0


def test_without_a_budget_nobody_is_refused(gauge):
    Budget(0, gauge).count(Holding(), 1000 * MOST)


def entered(room: BodyAdmission, size: int, seconds: float = 60) -> list[str]:
    told: list[str] = []
    room.enter(size * MEGABYTE, lambda: told.append("begun"), lambda: told.append("refused"), seconds)
    return told


def test_bodies_wait_in_the_order_in_which_they_came(budget):
    room = budget.room_to_parse()
    first, second, third = entered(room, 60), entered(room, 60), entered(room, 10)
    assert (first, second, third) == (["begun"], [], []), "a small one does not overtake"
    room.leave(60 * MEGABYTE)
    assert (second, third) == (["begun"], ["begun"])


def test_bodies_wait_for_what_questions_hold(budget):
    asked, room = Holding(), budget.room_to_parse()
    budget.count(asked, 80 * MEGABYTE)
    assert entered(room, 90) == ["begun"], "one alone always fits"
    waiting = entered(room, 5)
    assert waiting == []
    room.leave(90 * MEGABYTE)
    assert waiting == ["begun"]


def test_a_body_that_waits_too_long_is_refused_and_the_next_one_goes_on(budget):
    room = budget.room_to_parse()
    entered(room, 60)
    late, next_one = entered(room, 60, seconds=1e-9), entered(room, 20)
    budget.tick()
    assert (late, next_one) == (["refused"], ["begun"])


def test_memory_is_returned_at_once_after_a_large_request_and_each_minute_in_any_case(budget, monkeypatch):
    now, trims = [1000.0], []
    monkeypatch.setattr(memory, "monotonic", lambda: now[0])
    monkeypatch.setattr(memory, "trim", lambda: trims.append(now[0]))
    budget.tick()
    now[0] += 1
    entered(room := budget.room_to_parse(), 8)
    room.leave(8 * MEGABYTE)
    budget.tick()
    for _ in range(3):
        now[0] += 40
        budget.tick()
    assert trims[-2:] == [1001.0, 1081.0]


def test_bodies_leave_some_memory_to_questions(budget):
    entered(budget.room_to_parse(), 100)
    budget.count(Holding(), MOST // 8)
    with pytest.raises(MemoryInUse):
        budget.count(Holding(), 2 * MEGABYTE)


def test_rows_are_counted_while_they_are_fetched(monkeypatch):
    monkeypatch.setattr(memory, "budget", Budget(MEGABYTE))
    memory.begin_request()
    cursor = sqlite3.connect(":memory:").execute(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, 'abc' || x FROM n"
    )
    with pytest.raises(NeedsTooMuchMemory):
        memory.fetched(cursor)
    memory.end_request()
    assert memory.budget.held == 0 and memory.holding() is None


def test_outside_of_requests_nothing_is_counted(monkeypatch):
    monkeypatch.setattr(memory, "budget", Budget(1))
    memory.count([("x" * 100,)] * 1000)
    assert memory.budget.held == 0


def test_a_refusal_keeps_nothing(budget):
    """An error that were raised again and again would keep the frames that it went through, and their rows."""
    gc.disable()
    try:
        asked = Holding()

        class Rows(list):
            pass

        def fail() -> ref:
            rows = Rows()
            gone = ref(rows)
            with contextlib.suppress(NeedsTooMuchMemory):
                budget.count(asked, MOST + 1)
            return gone

        assert fail()() is None
    finally:
        gc.enable()


def test_the_size_of_what_is_parsed_is_estimated_from_its_structure():
    assert memory.size_of_parsed(b"[" + b"{}," * 999 + b"{}]") > 1000 * 200
    assert memory.size_of_parsed(b'["' + b"x" * 10_000 + b'"]') < 11_000


def test_running_out_of_memory_replaces_the_process_once(monkeypatch):
    replaced: list[str] = []
    monkeypatch.setattr(memory, "_replace", lambda: replaced.append("now"))
    memory.exhausted()
    memory.exhausted()
    assert replaced == ["now"]
