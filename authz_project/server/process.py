"""The processes that answer, and what granian hands to them.

Granian's interface for WSGI gives each request a thread before its body is there, and lets that thread wait for the
body without end. Its other interface reads bodies without a thread, but hands everything through an event loop, which
takes a third more of a processor. So the worker here uses the latter with its own end: what granian delivers to an
"event loop" is done at once, in the thread of granian's that delivers it.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

from django.conf import settings
from granian import Granian
from granian._granian import CallbackScheduler, RSGIWorker, WorkerSignal
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.mp import WorkerProcess

from authz_project.readiness import draining
from authz_project.server import files
from authz_project.server.listening import Listening, is_possible
from authz_project.server.signals import Signals, interrupted_by
from policy.waking import watch

FINISH_WITHIN = 30  # seconds that requests in flight have after a signal to stop
HEAD_WITHIN = 30_000  # milliseconds for a request's head to arrive, and for the next one to begin
LAST_ANSWERS = 0.2  # seconds after a signal to stop, at the least, for clients to hear that they are to go elsewhere
ONE = 1  # thread of granian's that Python runs in: it hands over what arrives, and waits for nobody


def run_server(host: str, port: int, workers: int, threads: int) -> None:
    """Until a signal to stop. Of a process's threads, one looks at what arrives, and the others answer: see `Slots`."""
    multiprocessing.set_start_method("spawn", force=True)  # workers read the settings anew, and share nothing
    files.allow_as_many_as_possible()
    server = Granian(
        "authz_project.server.intake:Intake",
        address=host,
        port=port,
        interface=Interfaces.WSGI,  # the one that may have more than one thread
        workers=workers,
        blocking_threads=max(2, threads),
        blocking_threads_idle_timeout=600,
        workers_kill_timeout=FINISH_WITHIN + ceil(settings.DRAIN_SECONDS),
        backpressure=files.connections_of_worker(threads),
        respawn_failed_workers=True,
        websockets=False,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=HEAD_WITHIN),
        log_level=LogLevels.error,
        log_dictconfig=settings.LOGGING,
    )
    interrupted_by(Signals(), server)
    try:
        with turns_shared():
            server.serve(spawn_target=worker)
    except SystemExit:
        if not server.interrupt_signal:  # a worker that heard of it first has not failed
            raise


@contextmanager
def turns_shared() -> Iterator[None]:
    """Give the workers that start meanwhile a file to lock, so that of all of them few take long at a time."""
    if not hasattr(os, "memfd_create"):  # each has turns of its own
        yield
        return
    file = os.memfd_create("turns")
    os.environ[settings.TURNS_FILE_VARIABLE] = f"/proc/{os.getpid()}/fd/{file}"
    try:
        yield
    finally:
        del os.environ[settings.TURNS_FILE_VARIABLE]
        os.close(file)


@WorkerProcess.wrap_target
def worker(number, intake, sock, ipc, loop, mode, *given):
    """Serve until a signal to stop; granian says what the arguments are (`MPServer._spawn_worker`)."""
    runtime_threads, runtime_blocking, threads, idle, backpressure, _, *protocols, _, ssl, _, metrics = given
    listening = Listening(*sock[0].__getstate__()) if is_possible() else None
    stop, stopped = stop_signal(listening), threading.Event()
    stop.add_cb(stopped.set)
    at_once = AtOnce()
    scheduler = CallbackScheduler(at_once, None, None, None, None)
    scheduler._schedule_fn = intake(threads - 1, keeps_up=number == 1, number=number)
    if listening is not None:
        sock = (None, listening.holder)
    rust = RSGIWorker(
        number, sock, ipc, runtime_threads, runtime_blocking, ONE, idle, backpressure, *protocols, *ssl, metrics
    )  # fmt: skip
    rust.serve_str(scheduler, at_once, stop)
    stopped.wait()


def stop_signal(listening: Listening | None) -> WorkerSignal:
    """Given when this process is told to stop, or `DRAIN_SECONDS` later; it is not ready from the first moment on.

    Until then, each answer says that it is its connection's last, so that none is closed on a request that is on its
    way. Requests in flight finish: those that wait for changes, at once. Who stops it by hand (Ctrl-C) does not wait.
    """
    stop: WorkerSignal = WorkerSignal()
    signals = Signals()

    def end() -> None:
        if signals.next() == signal.SIGTERM:
            draining.set()
            _await_end_of_draining(signals)
        draining.set()
        watch.end()
        if listening is not None:
            listening.end()
        stop.set()  # once: at the third time it would wait for ever

    threading.Thread(target=end, name="end", daemon=True).start()
    return stop


def _await_end_of_draining(signals: Signals) -> None:
    """Or somebody at a terminal. SIGTERM may come again: whoever stops a service may tell all its processes."""
    until = time.monotonic() + max(settings.DRAIN_SECONDS, LAST_ANSWERS)
    while signals.next(until - time.monotonic()) == signal.SIGTERM:
        pass


class AtOnce:
    """Stands where granian expects an event loop, and makes nothing wait for another thread."""

    @staticmethod
    def call_soon(callback: Callable, *arguments: object, context: object = None) -> None:
        callback(*arguments)

    call_soon_threadsafe = call_soon
