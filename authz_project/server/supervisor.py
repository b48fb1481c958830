"""The parent of the worker processes: starts them, restarts those that die, and stops them on request.

It takes no requests and uses no database, so no request can crash it. However often a worker dies, the parent keeps
running until it receives a signal to stop, or if no worker can start the first time.

Workers are forked: they share the memory of all that the parent has imported, and start in milliseconds. So the parent
has a single thread, and no connection to a database.
"""

import atexit
import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from math import inf
from multiprocessing.connection import Connection, wait
from typing import Any

from django.dispatch import Signal

from authz_project.server.listening import TO_STOP, Signals
from policy.core.threads import start_thread

log = logging.getLogger("authz.server")

SHORTEST, LONGEST = 0.1, 30.0  # seconds until a dead worker is restarted: exponential backoff, up to LONGEST
LAST = 1.0  # maximum if this worker had served and no other one is up: otherwise nobody would answer
SETTLED = 30.0  # seconds of serving after which the backoff is reset
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # of Linux's prctl
LOOK_FOR_PARENT_EVERY = 0.5  # seconds, where the system does not tell that the parent has ended

worker_started, worker_ended = Signal(), Signal()  # sent in the parent, with the worker's `number`

_forking = multiprocessing.get_context("fork")


class CannotStart(Exception):
    """No worker could start the first time; the reason is logged."""


class WorkerReport:
    """Tells the parent that this worker is serving, or why it could not start."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Report the result of the startup code inside. If it fails, exit; the parent logs the reason."""
        try:
            yield
        except Exception:
            self._send(traceback.format_exc())
            sys.exit(1)
        self._send("")

    def _send(self, text: str) -> None:
        with suppress(OSError):  # the parent is gone, and this process ends with it
            self._pipe.send(text)
            self._pipe.close()


Target = Callable[..., None]  # what a worker runs, with its number, its `WorkerReport`, and the remaining arguments


class _WorkerPlace:
    """A numbered worker: the process that currently does its work, or when the next one starts."""

    def __init__(self, number: int, target: Target, arguments: tuple[object, ...] = ()):
        self.number = number
        self._target, self._arguments = target, arguments
        self.process: Any = None
        self.is_serving = False
        self.reason = ""  # why it could not start, as reported
        self.due = 0.0  # when the next process starts, by `monotonic`
        self._pipe: Connection | None = None
        self._served_since = inf
        self._pause = SHORTEST

    @property
    def awaited(self) -> list[Any]:
        """Return the objects to pass to `multiprocessing.connection.wait`."""
        return [each for each in (self._pipe, self.process and self.process.sentinel) if each]

    def start(self) -> None:
        self.reason, self.is_serving, self._served_since = "", False, inf
        try:
            self._pipe, theirs = _forking.Pipe(duplex=False)
            with theirs, _signals_held():
                process = _forking.Process(
                    name=f"worker {self.number}",
                    target=_work,
                    args=(self._target, self.number, theirs, self._arguments),
                )
                process.start()
            self.process = process
        except OSError as reason:  # such as too many processes or open files, or too little memory
            self.reason = str(reason)

    def read_report(self) -> None:
        if self._pipe is None or not self._pipe.poll():
            return
        try:
            self.reason = self._pipe.recv()
            self.is_serving = not self.reason
        except (EOFError, OSError):  # it died before it could report
            pass
        if self.is_serving:
            self._served_since = time.monotonic()
        self._pipe.close()
        self._pipe = None

    def bury(self) -> tuple[int, int]:
        """Release a process that has ended; return its id and exit code."""
        process_id, code = 0, 1
        if self.process is not None:
            self.process.join()
            process_id, code = self.process.pid, self.process.exitcode
            self.process.close()
        self.read_report()
        if self._pipe is not None:
            self._pipe.close()
        self.process = self._pipe = None
        return process_id, code

    def pause(self, is_last: bool) -> float:
        """Schedule the start of the next process, and return the delay in seconds."""
        now = time.monotonic()
        if now - self._served_since > SETTLED:
            self._pause = SHORTEST
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        if is_last and self._served_since < inf:
            pause = min(pause, LAST)
        self.due = now + pause
        return pause

    def tell(self, number: int) -> None:
        """Send a signal to the process. One that is still starting gets SIGTERM instead, which ends it at once."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number if self.is_serving else signal.SIGTERM)


class Supervisor:
    """Keeps `workers` processes running. Use it in the main thread: on Linux, workers die with their parent thread."""

    def __init__(self, workers: int, target: Target, *arguments: object, beside: Sequence[Target] = ()):
        """`beside` run in processes of their own, number 0, which are killed once all workers have ended."""
        self._places = [_WorkerPlace(number, target, arguments) for number in range(1, workers + 1)]
        self._beside = [_WorkerPlace(0, each) for each in beside]
        self._has_served = False
        self._failures = 0  # at the first start, before any worker serves
        self._logged = ""  # the last reason of a failed start that was logged

    def run(self, signals: Signals, finish_within: float) -> None:
        """Start workers and restart those that die, until a signal to stop; then stop them within `finish_within`."""
        number = None
        try:
            while number is None:
                self._start_those_due()
                self._wait(signals, min((each.due for each in self._all if each.process is None), default=inf))
                self._look()
                number = signals.next(0)
        finally:
            self._stop(signals, number or signal.SIGTERM, finish_within)
            for place in self._beside:
                place.tell(signal.SIGKILL)

    @property
    def _all(self) -> list[_WorkerPlace]:
        return self._places + self._beside

    def _start_those_due(self) -> None:
        for place in self._all:
            if place.process is None and place.due <= time.monotonic():
                place.start()
                if place.process is None:
                    self._note_death(place)
                elif place.number:
                    worker_started.send_robust(self, number=place.number)

    def _wait(self, signals: Signals, until: float) -> None:
        """Wait for a signal, a report, or the end of a process, but no later than `until`."""
        seconds = None if until == inf else max(0.0, until - time.monotonic())
        wait([signals.fileno(), *(each for place in self._all for each in place.awaited)], seconds)

    def _look(self) -> None:
        for place in self._places:
            place.read_report()
            self._has_served |= place.is_serving
        for place in self._beside:
            place.read_report()
        for place in self._all:
            if place.process is not None and not place.process.is_alive():
                self._note_death(place)

    def _note_death(self, place: _WorkerPlace) -> None:
        process_id, code = place.bury()
        if process_id and place.number:
            worker_ended.send_robust(self, number=place.number)
        if place.reason and place.reason != self._logged:
            log.error("cannot start worker %d: %s", place.number, place.reason.strip())
            self._logged = place.reason
        if place.reason and place.number and not self._has_served:
            self._failures += 1
            if self._failures >= len(self._places):
                raise CannotStart
        pause = place.pause(is_last=all(each.process is None for each in self._places))
        level = logging.ERROR if code else logging.WARNING
        how = f"was killed by {_name(-code)}" if code < 0 else f"exited with status {code}"
        log.log(level, "worker %d (process %d) %s; restarting it in %.1f s", place.number, process_id, how, pause)

    def _stop(self, signals: Signals, number: int, within: float) -> None:
        """Forward this signal and those that follow. Kill the workers that are still running at the timeout."""
        until = time.monotonic() + within
        told: int | None = number
        while any(each.process is not None for each in self._places):
            if time.monotonic() >= until:
                told = signal.SIGKILL
            for place in self._places:
                place.read_report()
                if told is not None:
                    place.tell(told)
            if told == signal.SIGKILL:
                log.error("killed workers that did not stop within %.0f s", within)
                return
            self._wait(signals, until)
            for place in self._places:
                if place.process is not None and not place.process.is_alive():
                    place.bury()
            told = signals.next(0)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold signals back: until `_work` has run in a new process, they would be reported to its parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TO_STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(target: Target, number: int, pipe: Connection, arguments: tuple[object, ...]) -> None:
    signal.set_wakeup_fd(-1)
    for each in TO_STOP:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TO_STOP)
    end_with_parent(f"authz-{number}")
    try:
        target(number, WorkerReport(pipe), *arguments)
    finally:
        atexit._run_exitfuncs()  # which processes that are forked do by themselves from Python 3.13 on


def end_with_parent(name: str) -> None:
    """Make this process exit when its parent does, however that happens, so that the port is released; and name it.

    On Linux, the kernel kills it. Elsewhere, a thread looks for the parent.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    if sys.platform == "linux" and _library().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0:
        _library().prctl(_PR_SET_NAME, name.encode())
        if os.getppid() != parent.pid:  # the parent ended before the call
            os._exit(1)
    else:
        start_thread("parent", _end_after, parent.pid)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _end_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_FOR_PARENT_EVERY)
    os._exit(1)
