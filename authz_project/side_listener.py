"""A small HTTP listener on a separate port, for metrics and health checks.

It answers each request on a thread. Clients that send half a request, or do not read the response, cannot block it:
each connection has a deadline, and when too many are open, the oldest is closed for the newest.
"""

import logging
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from policy.core.threads import start_thread, start_timer

log = logging.getLogger("authz.server")

TIMEOUT = 5.0  # seconds without progress in receiving a request or sending its response
WITHIN = 10.0  # seconds for a whole request, even with progress
AT_ONCE = 32  # connections; another one closes the oldest
THREADS = 2 * AT_ONCE  # threads of closed connections may take a moment to end; above this, new ones are rejected

Start = Callable[..., Callable[[bytes], object]]
Application = Callable[[dict, Start], object]


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: scrapes and probes are too frequent."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], application: Application, reuse_port: bool):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.allow_reuse_port = reuse_port
        self._open: dict[socket.socket, None] = {}  # oldest first
        self._lock, self._free_threads = threading.Lock(), threading.Semaphore(THREADS)
        super().__init__(address, _Handler)
        self.set_app(application)  # type: ignore[arg-type]  # a narrower type, for what the handler calls

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free_threads.acquire(blocking=False):
            self.shutdown_request(request)
            return
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= AT_ONCE else None
            if oldest is not None:
                del self._open[oldest]
                _hang_up(oldest)
            self._open[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._done(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            late = start_timer(WITHIN, _hang_up, request)
            try:
                super().process_request_thread(request, client_address)
            finally:
                late.cancel()
        finally:
            self._done(request)

    def _done(self, request: socket.socket) -> None:
        with self._lock:
            self._open.pop(request, None)
        self._free_threads.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the exception, unless it only means that either side closed the connection."""
        if not isinstance(sys.exception(), OSError):
            log.exception("side listener request failed")

    def server_bind(self) -> None:
        """Bind without the standard library's DNS lookup of this host's name, which may block."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


def _hang_up(request: socket.socket) -> None:
    """Shut the connection down, so that the thread that reads or writes finds it closed."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def start_listener(host: str, port: int, application: Application, name: str, reuse_port: bool = False) -> WSGIServer:
    """Start answering on threads. With `reuse_port`, other processes may listen on the port as well."""
    server = _Server((host, port), application, reuse_port)
    start_thread(name, server.serve_forever)
    return server
