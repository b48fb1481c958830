"""The parent of the workers, with workers that do nothing but start and die."""

import errno
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Callable

import pytest

from authz_project.server import supervisor as supervisor_module
from authz_project.server.supervisor import LAST, LONGEST, SHORTEST, CannotStart, Supervisor, WorkerReport, _WorkerPlace

WITHIN = 10  # seconds to stop


class Told:
    """In place of the signals of a process: says SIGTERM as soon as enough has happened."""

    def __init__(self, is_enough: Callable[[], bool]):
        self.is_enough = is_enough
        self._ends = socket.socketpair()

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def next(self, seconds: float | None = None) -> int | None:
        return signal.SIGTERM if self.is_enough() else None


def dies_when_it_serves(number: int, report: WorkerReport) -> None:
    with report.starting():
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def cannot_start(number: int, report: WorkerReport) -> None:
    with report.starting():
        raise ValueError("SETTING must be a number")


def one_cannot_start(number: int, report: WorkerReport) -> None:
    if number == 2:
        return cannot_start(number, report)
    return serves(number, report)


def serves(number: int, report: WorkerReport) -> None:
    with report.starting():
        pass
    while True:
        time.sleep(60)


def run(caplog, target, workers: int, is_enough: Callable[[str], bool]) -> str:
    """What is logged until then."""
    with caplog.at_level(logging.WARNING, "authz.server"):
        Supervisor(workers, target).run(Told(lambda: is_enough(caplog.text)), WITHIN)
    return caplog.text


def pauses(text: str, number: int) -> list[float]:
    return [float(each) for each in re.findall(rf"worker {number} .* restarting it in ([\d.]+) s", text)]


def test_a_worker_that_dies_again_and_again_never_ends_the_parent(caplog):
    """Six times within a few seconds, where two were once too many."""
    text = run(caplog, dies_when_it_serves, 1, lambda text: len(pauses(text, 1)) >= 6)
    assert pauses(text, 1)[:6] == [0.1, 0.2, 0.4, 0.8, LAST, LAST], "nobody else would answer meanwhile"
    assert text.count("was killed by SIGKILL") == text.count("restarting") and "cannot start" not in text


def test_what_no_worker_can_start_with_ends_the_server_and_is_said_once(caplog):
    with caplog.at_level(logging.WARNING, "authz.server"), pytest.raises(CannotStart):
        Supervisor(2, cannot_start).run(Told(lambda: False), WITHIN)
    assert caplog.text.count("ValueError: SETTING must be a number") == 1


def test_a_worker_that_cannot_start_beside_one_that_serves_is_tried_again_and_says_why_once(caplog):
    text = run(caplog, one_cannot_start, 2, lambda text: len(pauses(text, 2)) >= 4)
    assert pauses(text, 2)[:4] == [0.1, 0.2, 0.4, 0.8] and pauses(text, 1) == []
    assert text.count("ValueError: SETTING must be a number") == 1


def test_pauses_grow_to_the_longest_and_begin_anew_after_a_while_of_serving(monkeypatch):
    place, now = _WorkerPlace(1, dies_when_it_serves), 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    place._served_since = now
    found = [place.pause(is_last=False) for _ in range(11)]
    assert found[:3] == [SHORTEST, 2 * SHORTEST, 4 * SHORTEST] and found[-2:] == [LONGEST, LONGEST]
    assert place.due == now + LONGEST
    now += LONGEST
    assert place.pause(is_last=False) == LONGEST
    now += 1
    assert place.pause(is_last=False) == SHORTEST


def test_a_process_that_cannot_be_had_is_tried_again(caplog, monkeypatch):
    """As where the system has no memory left for one more."""

    def refuse(self, *_: object) -> None:
        self.reason = "[Errno 11] Resource temporarily unavailable"

    supervisor = Supervisor(1, dies_when_it_serves)
    supervisor._has_served = True
    monkeypatch.setattr(_WorkerPlace, "start", refuse)
    with caplog.at_level(logging.WARNING, "authz.server"):
        supervisor.run(Told(lambda: caplog.text.count("restarting") >= 3), WITHIN)
    assert caplog.text.count("Resource temporarily unavailable") == 1


def test_a_worker_whose_pipe_cannot_be_had_is_tried_again(caplog, monkeypatch):
    """As where the system has no file left to open: the parent and the other workers go on."""
    pipe, tries = supervisor_module._forking.Pipe, []

    def scarce(duplex: bool):
        tries.append(1)
        if len(tries) == 1:
            raise OSError(errno.ENFILE, "Too many open files in system")
        return pipe(duplex=duplex)

    monkeypatch.setattr(supervisor_module._forking, "Pipe", scarce)
    supervisor = Supervisor(1, serves)
    with caplog.at_level(logging.WARNING, "authz.server"):
        supervisor._has_served = True
        supervisor.run(Told(lambda: supervisor._places[0].is_serving), WITHIN)
    assert caplog.text.count("Too many open files in system") == 1
