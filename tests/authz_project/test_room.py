"""What a request holds is given back, whatever becomes of the request."""

import threading
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace
from unittest import mock

import pytest

from authz_project.server import intake
from authz_project.server.intake import SMALL, Intake, _BodyMemory
from authz_project.server.workers import CheckThreads
from policy.core.memory import Budget

LARGE = SMALL + 1
MANY = 1_000  # bodies: more than Python's limit of recursion allows, if each began inside of the one before it


@pytest.fixture
def budget() -> Budget:
    return Budget(4 * LARGE)


@pytest.fixture
def held(budget) -> _BodyMemory:
    """A large body that is being answered."""
    body = _BodyMemory(budget.room_to_read(), budget.room_to_parse())
    body.wait_to_be_read(LARGE, fail, nothing)
    body.wait_to_be_parsed(2 * LARGE, nothing, fail)
    assert budget.held == 2 * LARGE
    return body


def nothing(*_: object) -> None:
    pass


def fail(*_: object) -> None:
    raise RuntimeError


def test_who_is_not_answered_gives_room_back(budget, held):
    with mock.patch.object(intake, "answer", fail), pytest.raises(RuntimeError):
        Intake.__new__(Intake)._answer({}, None, held, b"")
    assert budget.held == 0


def test_who_is_not_begun_gives_room_back(budget, held):
    intake = Intake.__new__(Intake)
    intake._confirms_together = False
    with mock.patch.object(Intake, "_do", fail), pytest.raises(RuntimeError):
        intake._begin(None, SimpleNamespace(client="127.0.0.1:1"), None, held, b"", {})
    assert budget.held == 0


def test_any_number_of_waiting_bodies_is_admitted(budget, held):
    reading, parsing = Budget().room_to_read(), held._parsing
    begun: list[int] = []
    for number in range(MANY):
        body = _BodyMemory(reading, parsing)
        body.wait_to_be_read(1, fail, nothing)
        body.wait_to_be_parsed(2 * LARGE + 1, partial(begin, body, begun, number), fail)
    held.end()
    assert begun == [*range(MANY)]
    assert budget.held == 0


def begin(body: _BodyMemory, begun: list[int], number: int) -> None:
    begun.append(number)
    body.end()  # as if no thread could be had for it


def test_what_no_thread_can_be_had_for_is_never_done(monkeypatch):
    threads = CheckThreads(1)
    do = threads.known.do
    done: SimpleQueue[str] = SimpleQueue()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        assert not do(done.put, "refused")
        assert (threads.busy, threads.waiting) == (0, 0)
    assert do(done.put, "after")
    assert done.get(timeout=10) == "after" and done.empty()
