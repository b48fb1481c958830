"""The internals of granian that the server uses; `process.py` serves through granian's public interface, if it is to.

Granian's WSGI interface assigns a thread to each request before its body has arrived, and that thread waits for the
body without a timeout. Its RSGI interface reads bodies without a thread, but runs everything through an event loop,
which takes a third more CPU time. So the worker uses RSGI with a substitute for the event loop (`InlineLoop`), which
runs each callback immediately, in the granian thread that delivers it.
"""

import threading
from collections.abc import Callable

from granian._granian import CallbackScheduler, RSGIWorker, SocketHolder, WorkerSignal
from granian.constants import HTTPModes, SSLProtocols

from authz_project.server.listening import BACKLOG, HTTP1, Listening

IDLE_THREADS = 600  # seconds after which granian ends its own idle threads
ONE = 1  # thread of granian that runs Python: it hands requests over, and never waits


class Granian:
    """A server on a listening socket. `receive` is called in granian's thread and must not block."""

    def __init__(self, number: int, listening: Listening, connections: int):
        self._at_once, self._stop, self._stopped = InlineLoop(), WorkerSignal(), threading.Event()
        self._stop.add_cb(self._stopped.set)
        self._scheduler = CallbackScheduler(self._at_once, None, None, None, None)
        holder = SocketHolder(listening.detach(), False, BACKLOG)
        self._rust = _rust(number, holder, connections)

    def serve(self, receive: Callable[..., None]) -> None:
        """Serve until `stop`, and until requests in flight have finished."""
        self._scheduler._schedule_fn = receive
        self._rust.serve_str(self._scheduler, self._at_once, self._stop)
        self._stopped.wait()

    def stop(self) -> None:
        """Stop, from any thread. Call it only once: the third call would block forever."""
        self._stop.set()


def _rust(number: int, holder: SocketHolder, connections: int) -> RSGIWorker:
    """Return granian's worker. Its arguments are positional, and its stub does not declare all of them."""
    nothing = None
    runtime = (1, 512, ONE, IDLE_THREADS, connections)  # threads, blocking threads; Python's threads; connections
    protocols = (HTTPModes.http1, HTTP1, nothing, False, nothing)
    encryption: tuple[object, ...] = (False, nothing, nothing, nothing, str(SSLProtocols.tls13), nothing, [], False)
    metrics = (nothing, nothing)
    return RSGIWorker(number, (nothing, holder), nothing, *runtime, *protocols, *encryption, metrics)


class InlineLoop:
    """Passed to granian instead of an event loop: runs each callback immediately, in the calling thread."""

    @staticmethod
    def call_soon(callback: Callable, *arguments: object, context: object = None) -> None:
        callback(*arguments)

    call_soon_threadsafe = call_soon
