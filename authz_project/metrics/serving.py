"""Answers `GET /metrics` in the parent process of the workers, from threads, on a port of its own."""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from authz_project import __version__
from authz_project.metrics.table import METRICS, OF_SERVER, PREFIX
from authz_project.metrics.together import Together
from authz_project.metrics.worker import memory
from authz_project.side_listener import Application, Start, listening

log = logging.getLogger("authz.metrics")

PATHS = ("/metrics", "/metrics/")
TIDY_EVERY = 5.0  # seconds


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


def application_of(registry: CollectorRegistry) -> Application:
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
    threading.Thread(target=_keep_tidy, args=(together,), name="tidying metrics", daemon=True).start()
    with listening(host, port, application_of(registry), "metrics"):
        yield


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
