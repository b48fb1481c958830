"""The worker processes, and how granian passes requests to them.

Granian's WSGI interface gives each request a thread before its body has arrived, and lets that thread wait for the body
without a timeout. Its RSGI interface reads bodies without a thread, but passes everything through an event loop, which
takes a third more processor time. So the worker here uses RSGI with a substitute for the event loop (`AtOnce`): each
callback runs at once, in the granian thread that delivers it.
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
from authz_project.server.connection_limits import IDLE
from authz_project.server.listening import Listening, is_possible
from authz_project.server.signals import Signals, interrupted_by
from policy.waking import watch

FINISH_WITHIN = 30  # seconds that requests in flight have after a signal to stop
BACKLOG = 4096  # connections that wait to be accepted by each worker, if the system allows as many
LAST_ANSWERS = 0.2  # seconds of draining at the least, in which responses tell clients to go elsewhere
ONE = 1  # thread of granian's that runs Python: it hands over what arrives, and never waits


def run_server(host: str, port: int, workers: int, threads: int) -> None:
    """Serve until a signal to stop. Of a process's threads, one takes requests in, the others answer: see `Slots`."""
    multiprocessing.set_start_method("spawn", force=True)  # workers read the settings anew, and share nothing
    files.allow_as_many_as_possible()
    server = Granian(
        "authz_project.server.intake:Intake",
        address=host,
        port=port,
        interface=Interfaces.WSGI,  # granian allows several threads for it alone; `worker` uses RSGI all the same
        workers=workers,
        backlog=BACKLOG,
        blocking_threads=max(2, threads),
        blocking_threads_idle_timeout=600,
        workers_kill_timeout=FINISH_WITHIN + ceil(settings.DRAIN_SECONDS),
        backpressure=files.connections_of_worker(threads),
        respawn_failed_workers=True,
        websockets=False,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=int(IDLE * 1000)),
        log_level=LogLevels.error,
        log_dictconfig=settings.LOGGING,
    )
    interrupted_by(Signals(), server)
    try:
        with turns_shared():
            server.serve(spawn_target=worker)
    except SystemExit:
        if not server.interrupt_signal:  # a worker that received the signal before this process has not failed
            raise


@contextmanager
def turns_shared() -> Iterator[None]:
    """Give workers that start meanwhile a file to lock, by which they limit how many long statements run at once.

    The limit is for all of them together: see `checks/asking/turns.py`.
    """
    if not hasattr(os, "memfd_create"):  # then each worker has a limit of its own
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
        listening.limit_connections(backpressure)
    rust = RSGIWorker(
        number, sock, ipc, runtime_threads, runtime_blocking, ONE, idle, backpressure, *protocols, *ssl, metrics
    )  # fmt: skip
    rust.serve_str(scheduler, at_once, stop)
    stopped.wait()


def stop_signal(listening: Listening | None) -> WorkerSignal:
    """Return granian's signal to stop; a thread sets it once this process is told to stop, and has drained.

    SIGTERM begins the draining, for `DRAIN_SECONDS`. Meanwhile the process says that it is not ready, and each response
    closes its connection, so that no connection is closed later with a request on its way. After SIGINT (Ctrl-C) there
    is no such time. Requests in flight finish in both cases; those that wait for changes are answered at once.
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
        stop.set()  # only once: granian would wait for ever at the third time

    threading.Thread(target=end, name="end", daemon=True).start()
    return stop


def _await_end_of_draining(signals: Signals) -> None:
    """Wait for the end of draining, or for SIGINT. Further SIGTERMs are ignored.

    They are to be expected: a service manager may send SIGTERM to all processes of a service.
    """
    until = time.monotonic() + max(settings.DRAIN_SECONDS, LAST_ANSWERS)
    while signals.next(until - time.monotonic()) == signal.SIGTERM:
        pass


class AtOnce:
    """Given to granian in place of an event loop: runs each callback at once, in the calling thread."""

    @staticmethod
    def call_soon(callback: Callable, *arguments: object, context: object = None) -> None:
        callback(*arguments)

    call_soon_threadsafe = call_soon
