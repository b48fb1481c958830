"""Answers `GET /metrics` in the parent process of the workers, from threads, on a port of its own."""

from __future__ import annotations

import logging
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from authz_project import __version__
from authz_project.metrics.table import METRICS, OF_SERVER, PREFIX
from authz_project.metrics.together import Together
from authz_project.metrics.worker import memory

log = logging.getLogger("authz.metrics")

PATHS = ("/metrics", "/metrics/")
TIDY_EVERY = 5.0  # seconds
PATIENCE = 10.0  # seconds for a request to go on arriving, or its answer to be taken
WITHIN = 30.0  # seconds for a whole request, however slowly it goes on
AT_ONCE = 8  # requests; the connections of further ones are closed
Start = Callable[..., Callable[[bytes], object]]


class AllWorkers(Collector):
    """Collects what the workers counted, and what only their parent process knows."""

    def __init__(self, together: Together, database: str):
        self._together, self._database, self._began = together, database, time.time()

    def collect(self) -> Iterator[Metric]:
        for metric in self._together.read():
            if metric.name == f"{PREFIX}process_resident_memory_bytes":
                metric.add_sample(metric.name, {"process": "main"}, memory())
            yield metric
        values = {
            "workers": self._together.living(),
            "workers_ended": self._together.ended,
            "start_time_seconds": self._began,
        }
        labels = (__version__, platform.python_version(), self._database)
        for metric_of_table in OF_SERVER:
            name, text = f"{PREFIX}{metric_of_table.name}", metric_of_table.help
            if metric_of_table.name == "build_info":
                family = GaugeMetricFamily(name, text, labels=METRICS["build_info"].labels)
                family.add_metric(labels, 1)
                yield family
            elif metric_of_table.kind == "counter":
                yield CounterMetricFamily(name, text, value=values[metric_of_table.name])
            else:
                yield GaugeMetricFamily(name, text, value=values[metric_of_table.name])


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: scrapes come all day long."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *arguments: Any, **options: Any):
        self._places = threading.Semaphore(AT_ONCE)
        super().__init__(*arguments, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread, at most `AT_ONCE` at a time: clients that send nothing may not take all threads."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        late = threading.Timer(WITHIN, _hang_up, (request,))
        late.daemon = True
        try:
            late.start()
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the exception, unless it only says that either side closed the connection."""
        if not isinstance(sys.exception(), OSError):
            log.exception("a request for metrics was not answered")

    def server_bind(self) -> None:
        """Bind without the library's own way, which asks name servers for this host's name, and waits for them."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


def _hang_up(request: socket.socket) -> None:
    """Shut the connection down, so that the thread that reads or writes finds it closed."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _ServerOverSix(_Server):
    address_family = socket.AF_INET6


def application_of(registry: CollectorRegistry) -> Callable[[dict, Start], object]:
    answer = make_wsgi_app(registry)

    def application(environ: dict, start_response: Start) -> object:
        if environ["PATH_INFO"] not in PATHS:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"metrics are at /metrics\n"]
        return answer(environ, start_response)

    return application


@contextmanager
def served(path: Path, host: str, port: int, database: str) -> Iterator[None]:
    """Answer while what is inside runs. `database` says which kind it is, without its address."""
    together, registry = Together(path), CollectorRegistry()
    registry.register(AllWorkers(together, database))
    kind = _ServerOverSix if ":" in host else _Server
    server = make_server(host, port, application_of(registry), kind, _Handler)  # type: ignore[arg-type]
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    threading.Thread(target=_keep_tidy, args=(together,), name="tidying metrics", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _keep_tidy(together: Together) -> None:
    """Tidy up every few seconds: workers may end again and again while nobody scrapes."""
    while True:
        time.sleep(TIDY_EVERY)
        try:
            together.tidy()
        except FileNotFoundError:  # the server has ended, and with it the folder
            return
        except Exception:
            log.exception("metrics of workers that have ended cannot be put away")
            time.sleep(60.0)
