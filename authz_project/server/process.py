"""Worker processes, and how granian passes requests to them.

Granian's WSGI interface assigns a thread to each request before its body has arrived, and that thread waits for the
body without a timeout. Its RSGI interface reads bodies without a thread, but runs everything through an event loop,
which takes a third more CPU time. So the worker uses RSGI with a substitute for the event loop (`AtOnce`), which runs
each callback immediately, in the granian thread that delivers it.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from math import ceil

from django.conf import settings
from granian._granian import CallbackScheduler, RSGIWorker, SocketHolder, WorkerSignal
from granian.constants import HTTPModes, SSLProtocols
from granian.http import HTTP1Settings

from authz_project.database import draining
from authz_project.server import listening
from authz_project.server.listening import BACKLOG, IDLE, Listening, Signals, is_possible, opened
from authz_project.server.supervisor import Supervisor, WorkerReport
from policy.ground.threads import start_thread
from policy.ground.waking import watch

FINISH_WITHIN = 30  # seconds for requests in flight to finish after a signal to stop
LAST_ANSWERS = 0.2  # minimum of draining, in seconds, during which responses tell clients to reconnect elsewhere
IDLE_THREADS = 600  # seconds after which granian ends its own idle threads
ONE = 1  # thread of granian that runs Python: it hands requests over, and never waits


def run_server(host: str, port: int, workers: int, threads: int) -> None:
    """Serve until a signal to stop. In each process, one thread takes requests in; the others answer (see `Slots`)."""
    listening.allow_as_many_as_possible()
    signals = Signals()
    shared = None if is_possible() else opened(host, port)
    connections = listening.connections_of_worker(threads)
    supervisor = Supervisor(workers, worker, host, port, max(2, threads), connections, shared)
    with turns_shared():
        supervisor.run(signals, FINISH_WITHIN + ceil(settings.DRAIN_SECONDS))


@contextmanager
def turns_shared() -> Iterator[None]:
    """Give workers that start meanwhile a file to lock, to limit how many slow statements run at once.

    The limit is shared by all workers: see `checks/asking/turns.py`.
    """
    if not hasattr(os, "memfd_create"):  # then each worker has its own limit
        yield
        return
    file = os.memfd_create("turns")
    os.environ["AUTHZ_TURNS_FILE"] = f"/proc/{os.getpid()}/fd/{file}"
    try:
        yield
    finally:
        del os.environ["AUTHZ_TURNS_FILE"]
        os.close(file)


def worker(
    number: int,
    report: WorkerReport,
    host: str,
    port: int,
    threads: int,
    connections: int,
    shared: socket.socket | None,
) -> None:
    """Serve until a signal to stop, with up to `connections` clients; `shared` is the parent's socket, if any."""
    with report.starting():
        listening = Listening(host, port, BACKLOG) if shared is None else None
        holder = listening.holder if listening is not None else _holder_of(shared)
        stop, stopped = stop_signal(listening), threading.Event()
        stop.add_cb(stopped.set)
        at_once = AtOnce()
        scheduler = CallbackScheduler(at_once, None, None, None, None)
        import_module("authz_project.wsgi")  # first, and not at import: it sets up Django and everything that answers
        intake = import_module("authz_project.server.intake")
        scheduler._schedule_fn = intake.Intake(threads - 1, keeps_up=number == 1, number=number)
        if listening is not None:
            listening.limit_connections(connections)
        rust = _rust(number, holder, connections)
        rust.serve_str(scheduler, at_once, stop)
    stopped.wait()


def _holder_of(shared: socket.socket | None) -> SocketHolder:
    assert shared is not None, "a worker without a socket of its own shares its parent's"
    return SocketHolder(shared.detach(), False, BACKLOG)


def _rust(number: int, holder: SocketHolder, connections: int) -> RSGIWorker:
    """Return granian's worker. Its arguments are positional, and its stub does not declare all of them."""
    nothing = None
    runtime = (1, 512, ONE, IDLE_THREADS, connections)  # threads, blocking threads; Python's threads; connections
    protocols = (HTTPModes.http1, HTTP1Settings(header_read_timeout=int(IDLE * 1000)), nothing, False, nothing)
    encryption: tuple[object, ...] = (False, nothing, nothing, nothing, str(SSLProtocols.tls13), nothing, [], False)
    metrics = (nothing, nothing)
    return RSGIWorker(number, (nothing, holder), nothing, *runtime, *protocols, *encryption, metrics)


def stop_signal(listening: Listening | None) -> WorkerSignal:
    """Return granian's stop signal, which a thread sets once this process has been told to stop and has drained.

    SIGTERM starts draining, for `DRAIN_SECONDS`. Meanwhile the process reports that it is not ready, and each response
    closes its connection, so that no connection is closed later with a request in flight. SIGINT (Ctrl-C) skips
    draining. In both cases, requests in flight finish; those waiting for changes are answered at once.
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
        stop.set()  # only once: the third call would block forever

    start_thread("end", end)
    return stop


def _await_end_of_draining(signals: Signals) -> None:
    """Wait for the end of draining, or for SIGINT. Further SIGTERMs are ignored.

    They are to be expected, as a service manager may send SIGTERM to every process of a service.
    """
    until = time.monotonic() + max(settings.DRAIN_SECONDS, LAST_ANSWERS)
    while signals.next(until - time.monotonic()) == signal.SIGTERM:
        pass


class AtOnce:
    """Passed to granian instead of an event loop: runs each callback immediately, in the calling thread."""

    @staticmethod
    def call_soon(callback: Callable, *arguments: object, context: object = None) -> None:
        callback(*arguments)

    call_soon_threadsafe = call_soon
