"""Worker processes, and how granian passes requests to them.

Requests arrive by `granian_internals`, or, with `serve --event-loop`, by granian's public interface: an event loop, on
which a coroutine waits for each response.
"""

import asyncio
import gc
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from math import ceil
from typing import Any, NamedTuple, Protocol

from django.db import connections
from granian.constants import HTTPModes
from granian.rsgi import HTTPProtocol, Scope
from granian.server.embed import Server

from authz_project.database import draining
from authz_project.server import listening
from authz_project.server.listening import BACKLOG, HTTP1, SOON, Listening, Signals, is_possible, opened
from authz_project.server.supervisor import Supervisor, Target, WorkerReport
from policy.core.threads import start_thread

FINISH_WITHIN = 30  # seconds for requests in flight to finish after a signal to stop
LAST_ANSWERS = 1.0  # seconds at most, after draining, to tell clients that keep sending to reconnect elsewhere


def run_server(
    host: str,
    port: int,
    workers: int,
    threads: int,
    drain: float = 0.0,
    event_loop: bool = False,
    beside: Sequence[Target] = (),
) -> None:
    """Serve until a signal to stop. In each process, one thread takes requests in; the others answer.

    `beside` run in processes of their own. After SIGTERM, requests are still accepted for `drain` seconds.
    """
    listening.allow_as_many_as_possible()
    signals = Signals()
    shared = None if is_possible() else opened(host, port)
    most = listening.connections_of_worker(threads)
    import_what_answers()
    arguments = (host, port, max(2, threads), most, shared, drain, event_loop)
    supervisor = Supervisor(workers, worker, *arguments, beside=beside)
    supervisor.run(signals, FINISH_WITHIN + ceil(drain))


def import_what_answers() -> None:
    """Import everything that workers need, once for all of them, and before there are threads."""
    import_module("authz_project.wsgi")  # first: it sets up everything that answers
    import_module("authz_project.server.intake")
    with suppress(ImportError):  # another version of granian; a worker that needs its internals reports this
        import_module("authz_project.server.granian_internals")
    import_module("checks.asking.run").turns.share()
    connections.close_all()
    gc.collect()
    gc.freeze()  # memory that is never collected stays shared


def worker(
    number: int,
    report: WorkerReport,
    host: str,
    port: int,
    threads: int,
    connections: int,
    shared: socket.socket | None,
    drain: float,
    event_loop: bool,
) -> None:
    """Serve until a signal to stop, with up to `connections` clients; `shared` is the parent's socket, if any."""
    with report.starting():
        listening = Listening(shared or opened(host, port), is_shared=shared is not None)
        signals = Signals()
        server: ServesRequests
        if event_loop:
            server = OnEventLoop(host, port, connections)
        else:
            server = import_module("authz_project.server.granian_internals").Granian(number, listening, connections)
        intake = import_module("authz_project.server.intake")
        places = connections // intake.SHARE_OF_WAITING
        receive = intake.Intake(threads - 1, keeps_up=number == 1, number=number, places=places)
        listening.limit_connections(connections)
        start_thread("end", stop_on_signal, signals, listening, server.stop, drain)
    server.serve(receive)


class ServesRequests(Protocol):
    def serve(self, receive: Callable[..., None]) -> None: ...

    def stop(self) -> None: ...


def stop_on_signal(signals: Signals, listening: Listening, stop: Callable[[], None], drain: float) -> None:
    """Wait for a signal to stop, drain, and call `stop`.

    SIGTERM starts draining, for `drain` seconds. Meanwhile the process reports that it is not ready, and each response
    closes its connection, so that no connection is closed later with a request in flight. SIGINT (Ctrl-C) skips
    draining. In both cases, requests in flight finish; those waiting for changes are answered at once.
    """
    number = signals.next()
    try:
        draining.set()
        if number == signal.SIGTERM:
            _await_end_of_draining(signals, listening, drain)
        listening.end()
    finally:  # also if the system refuses what the above asks of it
        stop()


def _await_end_of_draining(signals: Signals, listening: Listening, drain: float) -> None:
    """Wait for the end of draining, or for SIGINT. Further SIGTERMs are ignored.

    They are to be expected, as a service manager may send SIGTERM to every process of a service.
    """
    until = time.monotonic() + drain
    while signals.next(SOON) != signal.SIGINT:
        now = time.monotonic()
        if now >= until + LAST_ANSWERS or (now >= until and not listening.expects_another()):
            return


# ---- granian's public interface -----------------------------------------------------------------------------------


class ReceivedRequest(NamedTuple):
    scope: Scope
    proto: "HeldProtocol"


class HeldProtocol:
    """Granian's protocol. It calls `free` once nothing refers to it: the response is sent, and the body is read."""

    def __init__(self, protocol: HTTPProtocol, loop: asyncio.AbstractEventLoop, free: Callable[[], object]):
        self._protocol, self._loop, self._free = protocol, loop, free
        self.response_bytes, self.response_file = protocol.response_bytes, protocol.response_file

    def __call__(self) -> "OnLoop":
        return OnLoop(self._protocol(), self._loop)

    def __aiter__(self) -> "BodyChunks":
        return BodyChunks(self._protocol.__aiter__(), self._loop)

    def __del__(self) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._free)


class BodyChunks(NamedTuple):
    chunks: Any
    loop: asyncio.AbstractEventLoop

    def __anext__(self) -> "OnLoop":
        return OnLoop(self.chunks.__anext__(), self.loop)


class OnLoop:
    """Granian's future, used by any thread: its callbacks would not wake the event loop from another one."""

    def __init__(self, future: Any, loop: asyncio.AbstractEventLoop):
        self._future, self._loop = future, loop
        self.done, self.cancelled, self.result = future.done, future.cancelled, future.result

    def add_done_callback(self, callback: Callable[["OnLoop"], object]) -> None:
        self._loop.call_soon_threadsafe(self._future.add_done_callback, lambda _: callback(self))

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._future.cancel)


class OnEventLoop:
    """A server on granian's public interface, which listens on a socket of its own."""

    def __init__(self, host: str, port: int, connections: int):
        self._server = Server(
            self._app, host, port, backpressure=connections, backlog=BACKLOG,
            http=HTTPModes.http1, http1_settings=HTTP1, websockets=False, log_enabled=False,
        )  # fmt: skip

    def serve(self, receive: Callable[[ReceivedRequest], None]) -> None:
        self._receive = receive
        asyncio.run(self._serve())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._server.stop)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve()

    async def _app(self, scope: Scope, protocol: HTTPProtocol) -> None:
        """Hand the request over, and wait: when this ends, granian ends the request, even one without a response."""
        done = asyncio.Event()
        self._receive(ReceivedRequest(scope, HeldProtocol(protocol, self._loop, done.set)))
        await done.wait()
