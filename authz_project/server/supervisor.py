"""The parent of the workers: starts, watches and replaces them, and does what is due now and then."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from http import HTTPStatus
from math import inf
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, NamedTuple

import orjson
from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.dispatch import Signal

from authz_project import sqlite_log
from authz_project.database import (
    DATABASE_AWAY,
    DRAINING,
    HEALTH,
    READINESS,
    READY,
    Readiness,
    current,
    draining,
    let_go_if_broken,
)
from authz_project.server.listening import Signals
from authz_project.side_listener import Application, Start
from facts import ends, pruning
from policy.errors import Unavailable

log = logging.getLogger("authz.server")

# ---- The periodic chores of a server, run by one of its processes, in a thread of its own -------------------------
# No request waits for a chore. If one fails, that is logged, and it runs again when it is next due.


class Chore(NamedTuple):
    name: str
    every: float  # seconds
    do: Callable[[], object]


CHORES = (
    Chore("the log beside the database", 10, sqlite_log.keep_small),
    Chore("facts that have ended", 60, ends.sweep_all),
    Chore("history that is old enough to be dropped", 3600, pruning.prune_by_setting),
)


def start_upkeep(chores: Sequence[Chore] = CHORES) -> None:
    """Start the thread that runs each chore at once, and then whenever it is due, for as long as the process lives."""
    threading.Thread(target=_keep_up, args=(chores,), name="upkeep", daemon=True).start()


def _keep_up(chores: Sequence[Chore]) -> None:
    due = dict.fromkeys(chores, time.monotonic())
    while True:
        for chore in sorted(due, key=due.__getitem__):
            if due[chore] <= time.monotonic():
                _do(chore)
                due[chore] = time.monotonic() + chore.every
        time.sleep(max(0.0, min(due.values()) - time.monotonic()))


def _do(chore: Chore) -> None:
    """Run a chore once. The connection is closed afterwards, and not kept until the next time."""
    try:
        let_go_if_broken()
        chore.do()
    except (Unavailable, Error) as reason:  # it is tried again when it is next due
        log.warning("%s: %s", chore.name, reason)
    except Exception:
        log.exception("%s: it failed", chore.name)
    with suppress(Error):
        connections[DEFAULT_DB_ALIAS].close()


# ---- lookout ------------------------------------------------------------------------------------------------------
# Says whether this process is ready, within a deadline, from a thread that has nothing else to do.


WITHIN = 2.0  # seconds that the database has to answer
FRESH = 1.0  # seconds for which a result is used again
GIVEN_UP = 60.0  # seconds after which a look that hangs is given up, and another one begun
MOST = 10  # threads whose looks hang: while there are so many, no other is started

Callback = Callable[[Readiness], None]


class Lookout:
    """Answers each request for readiness, at once or within a bit more than two seconds, whatever the database does.

    One thread looks at the database, on a connection of its own, and another one answers. If the first one hangs, the
    second still answers in time. Both start with the first request.
    """

    def __init__(self, look: Callable[[], Readiness] = current):
        self._look_once = look
        self._inbox: SimpleQueue[Callback] = SimpleQueue()
        self._is_started, self._starting = False, threading.Lock()
        self._lookers: list[_Looker] = []  # the last one is in use; those before it hang
        self._look: Future[Readiness] | None = None  # the latest one, under way or done
        self._begun = 0.0
        self._found, self._found_at = DATABASE_AWAY, float("-inf")

    def call_with_readiness(self, callback: Callback) -> None:
        """Return at once, and have another thread call `callback` with the readiness. What that raises is logged."""
        if not self._is_started:
            with self._starting:
                if not self._is_started:
                    threading.Thread(target=self._run, name="readiness", daemon=True).start()
                    self._is_started = True  # only now: if no thread can be started, the next call tries again
        # Last: where the above fails, the caller answers the request, which must be answered only once.
        self._inbox.put(callback)

    def _run(self) -> None:
        while True:
            # No variable keeps the request while this waits for the next one: see `Slots`.
            _call(self._inbox.get(), self._known())

    def _known(self) -> Readiness:
        if draining.is_set():
            return DRAINING
        if time.monotonic() - self._found_at > FRESH:
            self._found = self._looked()
            self._found_at = time.monotonic()
        return self._found

    def _looked(self) -> Readiness:
        try:
            if self._look is None or self._look.done() or self._is_given_up():
                self._begin()
        except RuntimeError:
            log.exception("not ready: cannot start a thread to check the database")
            return DATABASE_AWAY
        assert self._look is not None, "one is under way"
        try:
            return self._look.result(WITHIN)
        except TimeoutError:
            log.warning("not ready: the database has not responded for %d seconds", time.monotonic() - self._begun)
            return DATABASE_AWAY

    def _is_given_up(self) -> bool:
        if time.monotonic() - self._begun < GIVEN_UP:
            return False
        self._lookers = [each for each in self._lookers if each.is_alive]
        if len(self._lookers) >= MOST:
            return False
        another = _Looker(self._look_once)  # first: if no thread can be started, those before stay
        for each in self._lookers:
            each.dismiss()
        self._lookers.append(another)
        return True

    def _begin(self) -> None:
        if not self._lookers:
            self._lookers.append(_Looker(self._look_once))
        self._begun = time.monotonic()
        self._look = self._lookers[-1].look()


def health_application(lookout: Lookout) -> Application:
    """Return what answers `/healthcheck` and `/readyz` on a listener of its own."""

    def application(environ: dict, start_response: Start) -> list[bytes]:
        path, found = environ["PATH_INFO"], READY
        if path == READINESS:
            answered: SimpleQueue[Readiness] = SimpleQueue()
            lookout.call_with_readiness(answered.put)
            found = answered.get()
        is_known = path == READINESS or path in HEALTH
        status, body = (found.status, found.body) if is_known else (404, {"message": "Not found"})
        content = orjson.dumps(body)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [content]

    return application


def _call(callback: Callback, found: Readiness) -> None:
    try:
        callback(found)
    except BaseException:  # granian's own do not derive from Exception, and nobody else would log them
        log.exception("request failed")


class _Looker:
    """A thread that looks at the database when it is asked to. A dismissed one ends as soon as its look does."""

    def __init__(self, look: Callable[[], Readiness]):
        self._look = look
        self._asked: SimpleQueue[Future[Readiness]] = SimpleQueue()
        self._is_last = True
        self._thread = threading.Thread(target=self._run, name="look at the database", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def look(self) -> Future[Readiness]:
        found: Future[Readiness] = Future()
        self._asked.put(found)
        return found

    def dismiss(self) -> None:
        self._is_last = False

    def _run(self) -> None:
        while self._is_last:
            self._asked.get().set_result(self._look())


# ---- supervisor ---------------------------------------------------------------------------------------------------
# The parent of the worker processes: it starts them, replaces those that die, and stops them when it is told to.
#
# The parent takes no requests and uses no database, so no request can end it. However often a worker dies, the parent
# goes on; only a signal to stop ends it, or a first start at which no worker can begin to serve.


SHORTEST, LONGEST = 0.1, 30.0  # seconds until a dead worker is replaced: doubled at each death, up to LONGEST
LAST = 1.0  # at most, where no other worker is there and this one did serve: otherwise nobody would answer
SETTLED = 30.0  # seconds of serving after which the next death counts as the first one
_PR_SET_PDEATHSIG = 1  # of Linux's prctl

worker_started, worker_ended = Signal(), Signal()  # sent in the parent, with the worker's `number`

_spawning = multiprocessing.get_context("spawn")  # workers read the settings anew, and share nothing


class CannotStart(Exception):
    """No worker began to serve at the first start; the reason is logged."""


class WorkerReport:
    """Tells the parent that this worker serves from now on, or why it cannot."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Report how the start inside ends. If it fails, end the process: the parent logs the reason."""
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


Target = Callable[..., None]  # what a worker runs: called with its number, its `WorkerReport`, and further arguments


class _WorkerPlace:
    """One of the workers by number: the process that does its work now, or when the next one starts."""

    def __init__(self, number: int):
        self.number = number
        self.process: Any = None
        self.is_serving = False
        self.reason = ""  # why it could not start, as it reported
        self.due = 0.0  # when the next process starts, by `monotonic`
        self._pipe: Connection | None = None
        self._served_since = inf
        self._pause = SHORTEST

    @property
    def awaited(self) -> list[Any]:
        """Return what `multiprocessing.connection.wait` is to wait for."""
        return [each for each in (self._pipe, self.process and self.process.sentinel) if each]

    def start(self, target: Target, arguments: tuple[object, ...]) -> None:
        self.reason, self.is_serving, self._served_since = "", False, inf
        self._pipe, theirs = _spawning.Pipe(duplex=False)
        process = _spawning.Process(
            name=f"worker {self.number}", target=_work, args=(target, self.number, theirs, arguments)
        )
        try:
            process.start()
            self.process = process
        except OSError as reason:  # such as too many processes, or too little memory for one more
            self.reason = str(reason)
        finally:
            theirs.close()

    def read_report(self) -> None:
        if self._pipe is None or not self._pipe.poll():
            return
        try:
            self.reason = self._pipe.recv()
            self.is_serving = not self.reason
        except (EOFError, OSError):  # it died before it could say anything
            pass
        if self.is_serving:
            self._served_since = time.monotonic()
        self._pipe.close()
        self._pipe = None

    def bury(self) -> tuple[int, int]:
        """Take leave of a process that has ended; return its id and its exit code."""
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
        """Set when the next process starts, and return the seconds until then."""
        now = time.monotonic()
        if now - self._served_since > SETTLED:
            self._pause = SHORTEST
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        if is_last and self._served_since < inf:
            pause = min(pause, LAST)
        self.due = now + pause
        return pause

    def tell(self, number: int) -> None:
        """Send a signal to the process. One that is still starting ends at once at SIGTERM."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number if self.is_serving else signal.SIGTERM)


class Supervisor:
    """Keeps `workers` processes running. Used by the main thread: on Linux, a worker ends with the thread above it."""

    def __init__(self, workers: int, target: Target, *arguments: object):
        self._target, self._arguments = target, arguments
        self._places = [_WorkerPlace(number) for number in range(1, workers + 1)]
        self._has_served = False
        self._failures = 0  # at the first start, before any worker serves
        self._logged = ""  # the latest reason of a failed start that was logged

    def run(self, signals: Signals, finish_within: float) -> None:
        """Start the workers, and replace those that die until a signal to stop; then stop them within this time."""
        number = None
        try:
            while number is None:
                self._start_those_due()
                self._wait(signals, min((each.due for each in self._places if each.process is None), default=inf))
                self._look()
                number = signals.next(0)
        finally:
            self._stop(signals, number or signal.SIGTERM, finish_within)

    def _start_those_due(self) -> None:
        for place in self._places:
            if place.process is None and place.due <= time.monotonic():
                place.start(self._target, self._arguments)
                if place.process is None:
                    self._note_death(place)
                else:
                    worker_started.send_robust(self, number=place.number)

    def _wait(self, signals: Signals, until: float) -> None:
        """Wait for a signal, a report, or the end of a process; `until` then at most."""
        seconds = None if until == inf else max(0.0, until - time.monotonic())
        wait([signals.fileno(), *(each for place in self._places for each in place.awaited)], seconds)

    def _look(self) -> None:
        for place in self._places:
            place.read_report()
            self._has_served |= place.is_serving
        for place in self._places:
            if place.process is not None and not place.process.is_alive():
                self._note_death(place)

    def _note_death(self, place: _WorkerPlace) -> None:
        process_id, code = place.bury()
        if process_id:
            worker_ended.send_robust(self, number=place.number)
        if place.reason and place.reason != self._logged:
            log.error("cannot start worker %d: %s", place.number, place.reason.strip())
            self._logged = place.reason
        if place.reason and not self._has_served:
            self._failures += 1
            if self._failures >= len(self._places):
                raise CannotStart
        pause = place.pause(is_last=all(each.process is None for each in self._places))
        level = logging.ERROR if code else logging.WARNING
        how = f"was killed by {_name(-code)}" if code < 0 else f"exited with status {code}"
        log.log(level, "worker %d (process %d) %s; restarting it in %.1f s", place.number, process_id, how, pause)

    def _stop(self, signals: Signals, number: int, within: float) -> None:
        """Pass the signal on, and those that follow. Kill what still runs after this time."""
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


def _work(target: Target, number: int, pipe: Connection, arguments: tuple[object, ...]) -> None:
    end_with_parent()
    target(number, WorkerReport(pipe), *arguments)


def end_with_parent() -> None:
    """Have this worker end at once when its parent does, however that happens, so that the port becomes free.

    On Linux, the system kills it. Elsewhere a thread waits for the end of a pipe that the parent holds open.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0:
        if os.getppid() != parent.pid:  # it ended before the call
            os._exit(1)
    else:
        threading.Thread(target=_end_after, args=(parent,), name="parent", daemon=True).start()


def _end_after(parent: Any) -> None:
    parent.join()
    os._exit(1)
