"""Prometheus metrics of all workers, on a separate port.

Each process counts with the official client in multiprocess mode, which keeps values in files that all processes of
a server share. A worker's files are named by its number, which is unique among running processes, so a restarted worker
continues the counters. The server's parent process, which outlives all workers, merges the files for each scrape.

Without `serve --metrics-port`, this module is not imported, and nothing is counted.
"""

from __future__ import annotations

import fcntl
import logging
import os
import platform
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet
from wsgiref.simple_server import WSGIServer

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app, metrics_core, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from authz_project import __version__, observers
from authz_project.database import let_go_if_broken
from authz_project.models import EnvironmentPlace
from authz_project.observers import OTHER, AnsweredRequest
from authz_project.server.supervisor import WorkerReport, worker_ended, worker_started
from authz_project.side_listener import Application, Start, start_listener
from authz_project.spaces import SeenSpace, seen
from policy.core import spans
from policy.core.spaces import close_others
from policy.core.spans import Part
from policy.core.threads import start_thread
from policy.replicas.reading import UNCHECKED, statuses

log = logging.getLogger("authz.metrics")

PREFIX = "authz_"
PATHS = ("/metrics", "/metrics/")
PAUSE = 0.5  # seconds between updates of gauges
PAUSE_AFTER_FAILURE = 5.0  # seconds
MINUTE = 60.0  # seconds
_PAGE = resource.getpagesize()

# ---- the table ------------------------------------------------------------------------------------------------------
# Label cardinality is bounded, however many callers there are: endpoints come from the table of endpoints, methods
# from HTTP, and kinds from the code. A label is never an id, a predicate, a type, or an unknown path.

_QUICK = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_ANSWER = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MANY = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)


class Metric(NamedTuple):
    name: str  # without the prefix
    kind: str  # counter, histogram or gauge
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # of a histogram: upper bounds
    mode: Any = "livesum"  # of a gauge: how the client combines the values of several processes

    @property
    def whole(self) -> str:
        """Return the name in Prometheus: `requests` -> `authz_requests_total`."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", text, labels)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name, "histogram", text, labels, buckets)


def _gauge(name: str, text: str, *labels: str, mode: str = "livesum") -> Metric:
    return Metric(name, "gauge", text, labels, mode=mode)


OF_WORKERS = (
    _counter("requests", "Requests served", "endpoint", "method", "code"),
    _histogram("request_seconds", "Request duration, without time in the queue", _ANSWER, "endpoint"),
    _histogram(
        "wait_seconds",
        "Time spent waiting for a thread, a database connection, the write lock or a shared confirmation",
        _QUICK,
        "of",
    ),
    _histogram("statement_seconds", "Duration of database queries of checks", _QUICK),
    _counter("statements_failed", "Database queries of checks that failed"),
    _counter("decisions", "Decisions: one per check, one per list", "endpoint", "outcome"),
    _counter("list_results", "Results returned in lists", "endpoint"),
    _counter("decision_cache_hits", "Checks answered from the cache, after the database confirmed the entry"),
    _gauge("decisions_last_minute", "Decisions in the last minute"),
    _counter("plan_cache_misses", "Query plan cache misses"),
    _counter("plan_cache_hits", "Query plan cache hits"),
    _histogram("compilation_seconds", "Time to compile a query or a policy", _QUICK, "of"),
    _counter("policy_compilations", "Compiled policies", "outcome"),
    _counter("facts_inserted", "Facts inserted by committed changes"),
    _counter("facts_deleted", "Facts deleted or expired by committed changes"),
    _counter("revisions", "Committed changes", "kind"),
    _counter("space_revisions", "Committed changes in spaces other than home", "space"),
    _histogram("batch_entries", "Facts and patterns per request that changes facts", _MANY),
    _histogram("commit_changes", "Changes per group commit", _MANY[:7]),
    _gauge("loads_in_progress", "Bulk loads in progress"),
    _counter("loads", "Bulk loads completed", "outcome"),
    _gauge("threads_busy", "Busy request threads", "pool"),
    _gauge("threads", "Maximum number of request threads", "pool"),
    _gauge("requests_waiting", "Requests waiting for a thread", "pool"),
    _gauge("connections_open", "Open database connections"),
    _counter("connections_opened", "Database connections opened"),
    _counter("connections_lost", "Database connections found to be broken"),
    _gauge("replica_used", "Whether the replica is in use: 1 or 0", "replica", mode="livemin"),
    _gauge("replica_lag_seconds", "Replication lag in seconds", "replica", mode="livemax"),
    _gauge("replica_position", "Bytes of the write-ahead log that the replica has replayed", "replica", mode="livemax"),
    _counter("replica_answers", "Replica reads by outcome", "replica", "outcome"),
    _gauge("copy_age_seconds", "Age of a follower's copy in seconds", mode="livemax"),
    _counter("decision_log_lines", "Decisions written to the decision log, or dropped", "outcome"),
    _gauge("process_resident_memory_bytes", "Memory of a process", "process"),
    _counter("process_cpu_seconds", "CPU time of workers", "process"),
)
OF_SERVER = (
    _gauge("workers", "Running worker processes"),
    _counter("workers_ended", "Worker processes that ended since the server started"),
    _gauge("start_time_seconds", "Server start time, in seconds since 1970"),
    _gauge("build_info", "Version information; the value is always 1", "version", "python", "database"),
)
OF_SPACES = (  # in the order of `Contents`
    _gauge("space_environments", "Environments in the space", "space"),
    _gauge("space_facts", "Facts in the space, as estimated by PostgreSQL", "space"),
    _gauge("space_size_bytes", "Disk space of the tables and indexes of the space", "space"),
)
MOVES = _gauge("moves_in_progress", "Environments that are being moved to another space")
METRICS = {metric.name: metric for metric in (*OF_WORKERS, *OF_SERVER, *OF_SPACES, MOVES)}


# ---- files ----------------------------------------------------------------------------------------------------------
# A private temporary folder, for the lifetime of the server.

_NAME = "authz-metrics-"
_OLD = 60.0  # seconds after which an unlocked folder counts as abandoned
_HEAD = 8  # bytes; a shorter file has no values yet
_OF_CLIENT = "PROMETHEUS_MULTIPROC_DIR"  # where the client looks for the folder's path


@contextmanager
def made_folder() -> Iterator[Path]:
    drop_old(Path(tempfile.gettempdir()))
    path = Path(tempfile.mkdtemp(prefix=_NAME))  # accessible by its owner only
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield path
    finally:
        os.environ.pop(_OF_CLIENT, None)
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def drop_old(beside: Path) -> None:
    """Remove folders left by killed servers: old, unlocked ones of this user."""
    for path in beside.glob(f"{_NAME}*"):
        with suppress(OSError):
            about = path.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > _OLD:
                _remove_if_free(path)


def _remove_if_free(path: Path) -> None:
    """Remove the folder. Raise `BlockingIOError` if a running server has locked it."""
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    finally:
        os.close(lock)


def merged(path: Path) -> list[metrics_core.Metric]:
    """Return the metrics of all processes. Files that are just being created are skipped."""
    files = [str(file) for file in path.glob("*.db") if _has_begun(file)]
    return list(MultiProcessCollector.merge(files))


def _has_begun(file: Path) -> bool:
    try:
        return file.stat().st_size >= _HEAD
    except FileNotFoundError:  # gauges of a worker that has just ended
        return False


def value_of(path: Path, name: str) -> float | None:
    """Return the sum of a metric's samples; None if the metric does not exist."""
    for metric in merged(path):
        if metric.name == name:
            return sum(sample.value for sample in metric.samples)
    return None


# ---- in each process ------------------------------------------------------------------------------------------------

Made = Counter | Gauge | Histogram


class ProcessMetrics:
    """The metrics of one process, by name and labels: `metric("requests", "/api/list", "POST", 200).inc()`."""

    def __init__(self, table: Sequence[Metric]):
        registry = CollectorRegistry()
        self._metrics = {metric.name: _made(metric, registry) for metric in table}
        self._children: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *key: Any) -> Any:
        """Return the metric with these labels. Cached, because the client takes a lock and checks the labels."""
        child = self._children.get(key)
        if child is None:
            metric = self._metrics[key[0]]
            child = self._children[key] = metric.labels(*key[1:]) if len(key) > 1 else metric
        return child


def _made(metric: Metric, registry: CollectorRegistry) -> Made:
    name = f"{PREFIX}{metric.name}"
    match metric.kind:
        case "counter":
            return Counter(name, metric.help, metric.labels, registry=registry)
        case "histogram":
            return Histogram(name, metric.help, metric.labels, buckets=metric.buckets, registry=registry)
    return Gauge(name, metric.help, metric.labels, registry=registry, multiprocess_mode=metric.mode)


def write_to(path: Path, process: str) -> None:
    """Store the values of metrics created from now on in files of this process, whose name must be unique."""
    os.environ[_OF_CLIENT] = str(path)
    values.ValueClass = values.MultiProcessValue(process_identifier=lambda: process)


def buffered(written: type[Any]) -> Callable[[], None]:
    """Make values buffer amounts in memory, and return a function that adds them to the files.

    Adding an amount to a file takes 2 µs, appending it to a list a twentieth of that.
    """
    every: list[BufferedValue] = []

    class BufferedValue(written):  # type: ignore[misc]
        def __init__(self, *its: Any, **named: Any):
            super().__init__(*its, **named)
            self._amounts: list[float] = []
            self.inc = self._amounts.append
            every.append(self)

        def take(self) -> float:
            amounts = self._amounts[:]  # threads append concurrently
            del self._amounts[: len(amounts)]
            return sum(amounts)

        def add(self, amount: float) -> None:
            super().inc(amount)

    def flush() -> None:
        taken = [(value, value.take()) for value in tuple(every)]  # of all, so that an error leaves no list growing
        for value, amount in taken:
            if amount:
                value.add(amount)

    values.ValueClass = BufferedValue
    return flush


def memory(process: int | str = "self") -> int:
    """Return the resident memory of a process in bytes; if unknown, the peak of this one."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


# ---- in workers -----------------------------------------------------------------------------------------------------


class Pool(Protocol):
    """A thread pool: the number of busy threads, of all threads, and of queued requests."""

    @property
    def busy(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def waiting(self) -> int: ...


class Worker:
    """All metrics of a worker. Requests are counted as they are answered; gauges are updated twice a second."""

    def __init__(self, number: int, pools: Mapping[str, Pool]):
        self._flush = buffered(values.ValueClass)
        self.metric = ProcessMetrics(OF_WORKERS)
        self._process, self._pools = str(number), pools
        self._connections: WeakSet[BaseDatabaseWrapper] = WeakSet()
        self._looking = threading.Lock()
        self._questions: list[None] = []  # one item for each check since the last update
        self._asked: deque[tuple[float, int]] = deque()  # times of updates, and the numbers of checks
        self._processor = 0.0  # seconds of CPU time counted so far
        self._of_replicas: dict[tuple[str, str], int] = {}  # replica answers counted so far
        if settings.DECISION_LOG:
            self.metric("decision_log_lines", "dropped")  # 0 from the start: alerts see no increase in a first value

    # ---- events ------------------------------------------------------------------------------------------

    def seen(self, seen: AnsweredRequest) -> None:
        endpoint, metric = seen.endpoint, self.metric
        metric("requests", endpoint, seen.method, seen.status).inc()
        metric("request_seconds", endpoint).observe(seen.seconds)
        for name, _, seconds, facts in seen.noted:
            self._count(endpoint, name, seconds, facts)

    def noted(self, part: Part) -> None:
        self._count(OTHER, part.name, part.seconds, part.facts)

    def connected(self, connection: BaseDatabaseWrapper, **_: object) -> None:
        """Count a new connection; receiver of Django's signal."""
        self._connections.add(connection)
        self.metric("connections_opened").inc()

    def _count(self, endpoint: str, name: str, seconds: float, facts: Mapping[str, Any]) -> None:
        metric = self.metric
        match name:
            case "wait":
                metric("wait_seconds", facts["of"]).observe(seconds)
            case "statement":
                metric("statement_seconds").observe(seconds)
                if "failed" in facts:
                    metric("statements_failed").inc()
            case "found":
                metric("plan_cache_hits").inc()
            case "kept":
                metric("decision_cache_hits").inc()
            case "decision":
                self._decided(endpoint, facts)
            case "compile":
                metric("plan_cache_misses").inc()
                metric("compilation_seconds", "statement").observe(seconds)
            case "policy":
                metric("compilation_seconds", "policy").observe(seconds)
                metric("policy_compilations", _outcome(facts)).inc()
            case "load":
                metric("loads", _outcome(facts)).inc()
            case "change":
                metric("batch_entries").observe(facts["entries"])
            case "commit":
                metric("commit_changes").observe(facts["changes"])
            case "revision":
                metric("revisions", facts["kind"]).inc()
                if facts["space"]:
                    metric("space_revisions", facts["space"]).inc()
                metric("facts_inserted").inc(facts["inserted"])
                metric("facts_deleted").inc(facts["deleted"])
            case "lost":
                metric("connections_lost").inc()
            case "log":
                for outcome, number in facts.items():
                    metric("decision_log_lines", outcome).inc(number)

    def _decided(self, endpoint: str, facts: Mapping[str, Any]) -> None:
        metric = self.metric
        self._questions.append(None)
        if "allowed" in facts:
            for outcome in ("allowed", "denied"):
                counter = metric("decisions", endpoint, outcome)
                if number := facts[outcome]:
                    counter.inc(number)
        elif "rows" in facts:
            metric("decisions", endpoint, "listed" if facts["rows"] else "empty").inc()
            metric("list_results", endpoint).inc(facts["rows"])
        else:
            metric("decisions", endpoint, "sql").inc()

    # ---- gauges ------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Flush the counters and update the gauges."""
        with self._looking:
            self._look()
            self._flush()

    def _look(self) -> None:
        metric = self.metric
        metric("decisions_last_minute").set(self._a_minute())
        metric("loads_in_progress").set(spans.under_way["load"])
        for name, pool in self._pools.items():
            metric("threads_busy", name).set(pool.busy)
            metric("threads", name).set(pool.size)
            metric("requests_waiting", name).set(pool.waiting)
        opened = sum(connection.connection is not None for connection in _listed(self._connections))
        metric("connections_open").set(opened)
        metric("process_resident_memory_bytes", self._process).set(memory())
        seconds = time.process_time()
        metric("process_cpu_seconds", self._process).inc(seconds - self._processor)
        self._processor = seconds
        self._look_at_replicas()
        if settings.FOLLOW:
            metric("copy_age_seconds").set(settings.FOLLOW.age)

    def _look_at_replicas(self) -> None:
        metric = self.metric
        for replica in statuses():
            repeated = max(0, replica.tries - replica.answers - replica.asked)
            for outcome, number in (("counted", replica.answers), ("repeated", repeated)):
                counted = self._of_replicas.get((replica.name, outcome), 0)
                metric("replica_answers", replica.name, outcome).inc(max(0, number - counted))
                self._of_replicas[replica.name, outcome] = max(number, counted)
            if replica.reason != UNCHECKED:  # otherwise nothing is known yet
                metric("replica_used", replica.name).set(replica.is_used)
                metric("replica_position", replica.name).set(replica.position or 0)
                if replica.lag is not None:
                    metric("replica_lag_seconds", replica.name).set(replica.lag)

    def _a_minute(self) -> int:
        now, number = time.monotonic(), len(self._questions)
        del self._questions[:number]  # threads append concurrently
        self._asked.append((now, number))
        while self._asked[0][0] < now - MINUTE:
            self._asked.popleft()
        return sum(number for _, number in self._asked)


def _outcome(facts: Mapping[str, Any]) -> str:
    return "refused" if "failed" in facts else "done"


def _listed(connections: WeakSet[BaseDatabaseWrapper]) -> Sequence[BaseDatabaseWrapper]:
    """Return the connections as a list, retrying if threads add some meanwhile; empty after ten failures."""
    for _ in range(10):
        try:
            return list(connections)
        except RuntimeError:  # it was changed meanwhile
            continue
    return ()


def start(number: int, pools: Mapping[str, Pool]) -> Worker:
    """Start counting, as the worker with this number, for the lifetime of the process."""
    write_to(Path(settings.METRICS_FOLDER), str(number))
    worker = Worker(number, pools)
    connection_created.connect(worker.connected)
    observers.observe(worker.seen)
    spans.listen((worker.noted,))
    worker.look()
    start_thread("metrics", _keep_looking, worker)
    return worker


def _keep_looking(worker: Worker) -> None:
    while True:
        time.sleep(PAUSE)
        try:
            worker.look()
        except Exception:  # such as a full disk; earlier values are still there
            log.exception("cannot write metrics")
            time.sleep(PAUSE_AFTER_FAILURE)


# ---- in the server's parent process ---------------------------------------------------------------------------------


class ServerMetrics:
    """The metrics of the server. The supervisor's signals report workers."""

    def __init__(self, path: Path, database: str):
        write_to(path, "main")
        self._path = path
        self._metric = ProcessMetrics(OF_SERVER)
        self._metric("start_time_seconds").set(time.time())
        self._metric("build_info", __version__, platform.python_version(), database).set(1)

    def started(self, **_: object) -> None:
        self._metric("workers").inc()

    def ended(self, number: int, **_: object) -> None:
        """Keep the counters of a worker that has ended, and drop its gauges."""
        self._metric("workers").dec()
        self._metric("workers_ended").inc()
        mark_process_dead(number, str(self._path))


# ---- in a process of its own: the parent has one thread only --------------------------------------------------------


class AllProcesses(Collector):
    """Collects the metrics of all processes from their files."""

    def __init__(self, path: Path):
        write_to(path, "scrapes")
        memory_of_main = next(metric for metric in OF_WORKERS if metric.name == "process_resident_memory_bytes")
        self._path, self._metric = path, ProcessMetrics((memory_of_main,))

    def collect(self) -> Iterator[metrics_core.Metric]:
        self._metric("process_resident_memory_bytes", "main").set(memory(os.getppid()))
        yield from merged(self._path)


class SpaceMetrics(Collector):
    """What was in each space, and at home, up to a minute ago; nothing where there are no spaces besides home."""

    def __init__(self) -> None:
        self._found: list[SeenSpace] = []
        self._moves = 0

    def look(self) -> None:
        found = seen()
        self._found = found if len(found) > 1 else []
        self._moves = EnvironmentPlace.objects.filter(target__isnull=False).count() if self._found else 0

    def keep_looking(self) -> None:
        while True:
            try:
                let_go_if_broken()
                self.look()
            except Exception:
                log.exception("cannot look at spaces")
                self._found = []
            close_others()
            connections[DEFAULT_DB_ALIAS].close()
            time.sleep(MINUTE)

    def collect(self) -> Iterator[metrics_core.Metric]:
        found = self._found
        for place, metric in enumerate(OF_SPACES if found else ()):
            family = metrics_core.GaugeMetricFamily(metric.whole, metric.help, labels=metric.labels)
            for space in found:
                if space.contents is not None:
                    family.add_metric([space.name], space.contents[place])
            yield family
        if found:
            yield metrics_core.GaugeMetricFamily(MOVES.whole, MOVES.help, self._moves)


def application_of(registry: CollectorRegistry) -> Application:
    answer = make_wsgi_app(registry)

    def application(environ: dict, start_response: Start) -> object:
        if environ["PATH_INFO"] not in PATHS:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"metrics are at /metrics\n"]
        return answer(environ, start_response)

    return application


@contextmanager
def served(host: str, port: int, database: str) -> Iterator[Callable[..., None]]:
    """Make workers that are forked meanwhile count. Yield what serves the metrics, as the target of a process.

    `database` is the kind of database.
    """
    with made_folder() as path:
        server = ServerMetrics(path, database)
        worker_started.connect(server.started)
        worker_ended.connect(server.ended)
        settings.METRICS_FOLDER = str(path)
        try:
            yield partial(serve, host, port, path)
        finally:
            settings.METRICS_FOLDER = ""


def serve(host: str, port: int, path: Path, number: int, report: WorkerReport) -> None:
    """Serve the metrics of all processes, until this one is killed."""
    with report.starting():
        of_spaces = SpaceMetrics()
        listen(host, port, path, of_spaces)
    if connections[DEFAULT_DB_ALIAS].vendor == "postgresql":
        of_spaces.keep_looking()
    threading.Event().wait()


def listen(host: str, port: int, path: Path, *others: Collector) -> WSGIServer:
    registry = CollectorRegistry()
    for each in (AllProcesses(path), *others):
        registry.register(each)
    return start_listener(host, port, application_of(registry), "metrics")
