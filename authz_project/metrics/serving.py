"""Add up what the processes of a server count, and answer `GET /metrics` with it."""

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
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from authz_project import __version__
from authz_project.metrics import folder
from authz_project.metrics.table import METRICS, OF_SERVER, PREFIX
from authz_project.metrics.worker import memory
from authz_project.side_listener import Application, Start, listening

# ---- together -----------------------------------------------------------------------------------------------------
# Merges the metrics of all workers from their files, and keeps what workers that have ended counted.
#
# Only the server's parent process tidies up. A worker's files are named by its process id, such as `counter_123.db`.
# Once that process has ended, its counters and histograms are added to `counter_ended.db` and `histogram_ended.db`,
# and its gauges are dropped.

_ENDED = "ended"
_HEAD = 8  # bytes; a shorter file has nothing to read yet


class Together:
    def __init__(self, path: Path):
        self._path = path
        self._looking = threading.Lock()
        self.ended = 0  # workers, so far

    def read(self) -> list[Metric]:
        """Return all metrics, those of workers that have ended included."""
        with self._looking:
            self._tidy()
            return list(merged(self._path))

    def living(self) -> int:
        """Return how many workers are alive."""
        return sum(not folder.has_ended(self._path, each) for each in folder.workers(self._path))

    def tidy(self) -> None:
        """Add up the files of workers that have ended, and remove them."""
        with self._looking:
            self._tidy()

    def _tidy(self) -> None:
        for number in folder.workers(self._path):
            if folder.has_ended(self._path, number):
                self._put_away(number)
                self.ended += 1

    def _put_away(self, number: int) -> None:
        for file in self._path.glob(f"*_{number}.db"):
            kind = file.name.partition("_")[0]
            if kind != "gauge" and _is_readable(file):
                self._add(file, self._path / f"{kind}_{_ENDED}.db")
            file.unlink()
        (self._path / f"{number}.alive").unlink()

    @staticmethod
    def _add(file: Path, to: Path) -> None:
        kept = MmapedDict(str(to))
        try:
            for key, value, _, _ in MmapedDict.read_all_values_from_file(str(file)):
                kept.write_value(key, kept.read_value(key)[0] + value, 0.0)
        finally:
            kept.close()


def merged(path: Path) -> Iterator[Metric]:
    """Yield the metrics of all files that are there."""
    files = [str(each) for each in path.glob("*.db") if _is_readable(each)]
    yield from MultiProcessCollector.merge(files)


def value_of(path: Path, name: str) -> float | None:
    """Return the sum of a metric's samples; None where there is no such metric."""
    for metric in merged(path):
        if metric.name == name:
            return sum(sample.value for sample in metric.samples)
    return None


def _is_readable(file: Path) -> bool:
    """Say whether the file has anything to read: a worker may be making it now, or have ended while it did."""
    try:
        return file.stat().st_size >= _HEAD
    except FileNotFoundError:
        return False


# ---- serving ------------------------------------------------------------------------------------------------------
# Answers `GET /metrics` in the parent process of the workers, from threads, on a port of its own.

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
