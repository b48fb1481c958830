"""What a request holds is given back, whatever becomes of the request."""

import threading
from queue import SimpleQueue
from typing import Any
from unittest import mock

import pytest

from authz_project.server import intake
from authz_project.server.admission import SMALL
from authz_project.server.changes import Changes
from authz_project.server.intake import Intake, _Room
from authz_project.server.slots import Slots
from authz_project.server.waiting import Waiting

LARGE = SMALL + 1


@pytest.fixture
def receiving() -> Intake:
    """One with nothing but room for bodies."""
    made = Intake.__new__(Intake)
    made._room = _Room(LARGE)
    assert made._room.take(LARGE)
    return made


def fail(*_: object) -> None:
    raise RuntimeError


def test_who_is_not_answered_gives_room_back(receiving):
    with mock.patch.object(intake, "answer", fail), pytest.raises(RuntimeError):
        receiving._answer({}, None, LARGE, b"")
    assert receiving._room.take(LARGE)


def test_who_is_not_begun_gives_room_back(receiving):
    with mock.patch.object(Intake, "_do", fail), pytest.raises(RuntimeError):
        receiving._arrived(None, None, None, {}, LARGE, b"")
    assert receiving._room.take(LARGE)


def changes() -> Changes:
    return Changes(1, 1)


def waiting() -> Waiting:
    return Waiting(1, changes())


def slots() -> Slots:
    return Slots(1)


@pytest.mark.parametrize("made", [changes, waiting, slots])
def test_what_no_thread_can_be_had_for_is_never_done(made, monkeypatch):
    threads: Any = made()
    done: SimpleQueue[str] = SimpleQueue()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        assert not threads.do(done.put, "refused")
        assert (threads.busy, threads.waiting) == (0, 0)
    assert threads.do(done.put, "after")
    assert done.get(timeout=10) == "after" and done.empty()
