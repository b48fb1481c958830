"""A signal to stop is heard whichever thread of a process the system gives it to."""

import ctypes
import os
import signal
import sys
import time
from itertools import cycle, islice

import psutil
import pytest
import requests

from tests.faults.limits import workers_of
from tests.service import start_service

WITHIN = 60  # seconds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no signal can be given to a thread from outside")


@pytest.fixture
def running(tmp_path, migrated_urls):
    service = start_service(tmp_path, migrated_urls("sqlite", "signals"), "--dev", "--workers", "1")
    yield service
    service.process.kill()


def other_thread(pid: int) -> int:
    """One that is not the first, if there is one: the parent of the workers has a single thread."""
    return next((thread.id for thread in psutil.Process(pid).threads() if thread.id != pid), pid)


def tell_thread(pid: int, number: int) -> None:
    assert ctypes.CDLL(None).tgkill(pid, other_thread(pid), number) == 0


def until(is_so) -> bool:
    latest = time.monotonic() + WITHIN
    while not is_so() and time.monotonic() < latest:
        time.sleep(0.05)
    return is_so()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_stops(running, number):
    tell_thread(running.process.pid, number)
    assert running.process.wait(WITHIN) == 0


def test_a_worker_stops(running):
    (worker,) = workers_of(running)
    tell_thread(worker.pid, signal.SIGTERM)
    worker.wait(WITHIN)
    assert running.stop() == 0


def test_a_worker_that_hears_of_the_end_first_has_not_failed(running):
    """As when somebody presses Ctrl-C on a busy machine: the server finds that a worker has ended, and is told then."""
    (worker,) = workers_of(running)
    running.process.send_signal(signal.SIGSTOP)
    worker.send_signal(signal.SIGINT)
    assert until(lambda: worker.status() == psutil.STATUS_ZOMBIE), "it has ended, and nobody has looked yet"
    for number in islice(cycle((signal.SIGINT, signal.SIGTERM)), 6):
        os.kill(running.process.pid, number)
    running.process.send_signal(signal.SIGCONT)
    assert running.process.wait(WITHIN) == 0


def test_a_hangup_costs_nobody_an_answer(running):
    """As logrotate sends it, to the server or to all of its processes; or a terminal that is closed."""
    (worker,) = workers_of(running)
    for process in (running.process, worker):
        process.send_signal(signal.SIGHUP)
        for _ in range(20):
            assert requests.get(f"{running.origin}/healthcheck", timeout=60).status_code == 200
            time.sleep(0.02)
    assert [each.pid for each in workers_of(running)] == [worker.pid]
    assert running.stop() == 0
