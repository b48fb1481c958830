"""Statements that take long have turns; those that do not notice nothing of it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest
from django.db import connection

from checks.asking import postgresql, run
from checks.asking.limits import LONG, Deadline, SlowStatementLimit, SlowStatements, SlowStatementTurn, known
from checks.asking.run import turns
from checks.errors import QueryTooSlow, TooManySlowQueries
from tests.checks.conftest import about, remove
from tests.checks.test_time_limit import LOOK, NUMBERS, endless, limit
from tests.conftest import Api

READ = about("User:ann", "Doc:d", action="read")
SECONDS = 0.5  # is the limit of a question: five times what makes it slow


# ---- turns alone ---------------------------------------------------------------------------------------------------


def test_who_comes_second_waits_until_the_first_has_ended():
    both, order = SlowStatementLimit(1), []
    first = SlowStatementTurn(both, Deadline(60))

    def second() -> None:
        with both.one(Deadline(60)):
            order.append("second")

    with ThreadPoolExecutor(1) as other:
        done = other.submit(second)
        time.sleep(0.05)
        order.append("first")
        first.end()
        done.result(60)
    assert order == ["first", "second"]


def test_as_many_run_as_there_are_turns():
    two = SlowStatementLimit(2)
    with two.one(Deadline(60)), two.one(Deadline(60)), pytest.raises(TooManySlowQueries), two.one(Deadline(0.05)):
        pass


def test_who_passes_a_turn_on_has_the_next_one():
    both, order = SlowStatementLimit(1), []
    mine = SlowStatementTurn(both, Deadline(60))

    def other() -> None:
        with both.one(Deadline(60)):
            order.append("other")

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(other)
        while not order:
            mine.pass_on()
        order.append("mine")
        done.result(60)
    mine.end()
    assert order == ["other", "mine"] and both.take() == 0


def test_no_more_wait_for_long_than_there_are_threads_for():
    few = SlowStatementLimit(1)
    few.most_here = 1
    began = time.monotonic()
    with few.one(Deadline(60)), pytest.raises(TooManySlowQueries), few.one(Deadline(60)):
        pass
    assert LONG <= time.monotonic() - began < 30
    with few.one(Deadline(60)):  # who was refused takes no place, nor does who is done
        pass


def test_where_all_have_just_come_those_who_are_too_many_wait_for_a_place(monkeypatch):
    monkeypatch.setattr("checks.asking.limits.LONG", 3600)
    few, done = SlowStatementLimit(3), []
    few.most_here = 1

    def another() -> None:
        with few.one(Deadline(60)):
            done.append(len(few._here))

    with ThreadPoolExecutor(3) as pool:
        with few.one(Deadline(60)):
            others = [pool.submit(another) for _ in range(3)]
            until = time.monotonic() + 60
            while len(few._here) < 4 and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.05)
            assert done == []  # though there are turns
        for each in others:
            each.result(60)
    assert sorted(done) == [1, 2, 3]


def test_who_has_waited_for_a_turn_is_not_refused_when_passing_it_on():
    both = SlowStatementLimit(2)
    both.most_here = 2
    with both.one(Deadline(60)), both.one(Deadline(60)) as mine:
        time.sleep(LONG)
        with pytest.raises(TooManySlowQueries), both.one(Deadline(60)):
            pass
        mine.pass_on()


HOLDS = """
import django, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "authz_project.settings"
django.setup()
from checks.asking.limits import SlowStatementLimit
turns = SlowStatementLimit(1)
turns._file = int(sys.argv[1])
assert turns.take() == 0
print("has it", flush=True)
sys.stdin.read()
"""


def test_processes_have_turns_together_and_one_that_is_killed_leaves_its_own():
    mine = SlowStatementLimit(1)
    mine.share()
    command, files = [sys.executable, "-c", HOLDS, str(mine._file)], [mine._file]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=files) as other:
        assert other.stdout.readline() == b"has it\n"
        assert mine.take() is None
        other.kill()
    assert mine.take() == 0


def test_few_statements_are_known_and_the_oldest_is_forgotten_first(monkeypatch):
    monkeypatch.setattr("checks.asking.limits._MOST", 2)
    some = SlowStatements()
    for sql in "abc":
        some.note(sql, [sql, 1], 1)
    some.forget("b", ["b", 1])
    some.forget("never known", [])
    assert [sql for sql in "abc" if some.times(sql, [sql, 1])] == ["c"]
    assert not some.times("c", ["d", 1])  # with other values it may take no time


def test_whom_others_took_the_time_from_may_come_again_and_who_takes_too_long_is_told_so():
    one = SlowStatementLimit(1)
    with one.one(Deadline(0.2)) as turn:
        time.sleep(0.2)
        assert isinstance(turn.refusal, QueryTooSlow)
        with pytest.raises(TooManySlowQueries), one.one(Deadline(0.1)):
            pass
        turn.waited = 0.15
        assert isinstance(turn.refusal, TooManySlowQueries)


# ---- questions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(api, settings):
    """Reading takes for ever to decide, and has a limit. Nothing is known yet."""
    known.clear()
    assert turns.count >= 1, "the databases of tests are on this machine"
    with endless(api, settings, SECONDS):
        yield api


@contextmanager
def held() -> Iterator[None]:
    """All turns are others' meanwhile."""
    with ExitStack() as stack:
        for _ in range(turns.count):
            stack.enter_context(turns.one(Deadline(60)))
        yield


def test_a_question_that_takes_long_waits_for_its_turn_and_the_others_do_not(slow):
    for _ in range(2):  # from then on it is known to take long
        assert slow.post("/authorize", READ).status_code == 400
    with held():
        answer = slow.post("/authorize", READ)
        assert slow.post("/authorize", LOOK).json() == {"allowed": True}
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert answer.json() == {"message": "too many slow queries are running; try again later"}


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_on_sqlite_a_question_waits_from_the_moment_on_that_it_takes_long(slow):
    with held():
        assert slow.post("/authorize", READ).status_code == 503


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_on_postgresql_what_took_long_once_needs_no_turn(slow):
    with held():  # the machine may have stood still
        assert slow.post("/authorize", READ).status_code == 400
        assert slow.post("/authorize", READ).status_code == 400
        assert slow.post("/authorize", READ).status_code == 503


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_on_postgresql_many_at_once_that_are_all_the_first_took_long_once(slow):
    with mock.patch.object(postgresql, "_takes_long", return_value=False), ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: read_elsewhere(slow), range(3))) == [400, 400, 400]
    with held():
        assert slow.post("/authorize", READ).status_code == 400


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_on_postgresql_what_is_cut_short_is_not_taken_for_quick(slow):
    for _ in range(2):
        assert slow.post("/authorize", READ).status_code == 400
    with mock.patch.object(postgresql, "_in_time", side_effect=QueryTooSlow(2)):
        assert slow.post("/authorize", READ).status_code == 400
    with held():
        assert slow.post("/authorize", READ).status_code == 503


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_on_sqlite_what_takes_long_steps_aside_and_nothing_else_does(slow):
    with mock.patch("checks.asking.run.sleep") as step_aside:
        assert slow.post("/authorize", LOOK).json() == {"allowed": True}
        assert not step_aside.called
        assert slow.post("/authorize", READ).status_code == 400
    assert step_aside.call_count > 10


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_on_postgresql_it_is_known_while_the_first_one_still_runs(slow):
    with ThreadPoolExecutor(1) as pool, held():  # the first one is not known to need a turn
        first = pool.submit(read_elsewhere, slow)
        until = time.monotonic() + 60
        while not is_long() and time.monotonic() < until:
            time.sleep(0.01)
        assert slow.post("/authorize", READ).status_code == 503
        assert first.result(60) == 400


def read_elsewhere(slow: Api) -> int:
    """Ask on a connection of this thread's own, limited too: by twice the time, so that others find it running."""
    try:
        limit(str(int(1000 * SECONDS * 2)))
        return slow.post("/authorize", READ).status_code
    finally:
        connection.close()


def is_long() -> bool:
    return any(time.monotonic() - began > LONG for began, *_ in tuple(postgresql._running.values()))


def test_what_took_long_and_does_not_any_more_needs_no_turn(slow):
    for _ in range(2):
        assert slow.post("/authorize", READ).status_code == 400
    remove(slow, *NUMBERS)
    while known._times:  # on a busy machine, what takes no time may take long once more
        assert slow.post("/authorize", READ).json() == {"allowed": False}
    with held():
        assert slow.post("/authorize", READ).json() == {"allowed": False}


def test_a_question_that_ends_in_an_error_gives_its_turn_back(slow):
    for _ in range(3):
        assert slow.post("/authorize", READ).status_code == 400
    with held():
        pass


def test_a_question_that_may_take_only_so_long_does_without_an_answer_where_it_finds_no_turn(slow):
    with pytest.raises(QueryTooSlow), run.snapshot(), run.limited(0.05):
        raise TooManySlowQueries
