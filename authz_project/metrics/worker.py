"""Writes what a worker counted into the files of the official client, twice a second.

The environment must say where those files are (`folder`) before this is imported, since the client looks only then.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from authz_project import observing
from authz_project.metrics import folder
from authz_project.metrics.table import METRICS, OF_WORKERS, PREFIX, Metric
from authz_project.metrics.tallies import Taken, Tallies, TallyKey, Times
from policy.ground import spans
from policy.replicas.standing import standings

log = logging.getLogger("authz.metrics")

PAUSE = 0.5  # seconds between writes
MINUTE = 60.0  # seconds
_PAGE = resource.getpagesize()


class Pool(Protocol):
    """Threads that answer: how many of them do, how many may, and how many requests wait for one."""

    @property
    def busy(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def waiting(self) -> int: ...


class Counted(Histogram):
    """A histogram that takes whole counts of buckets; the client's own takes values one by one."""

    def add(self, times: Times) -> None:
        for bucket, number in zip(self._buckets, times.buckets, strict=True):
            if number:
                bucket.inc(number)
        self._sum.inc(times.total)


Made = Counter | Gauge | Counted


def made(metric: Metric, registry: CollectorRegistry) -> Made:
    name = f"{PREFIX}{metric.name}"
    match metric.kind:
        case "counter":
            return Counter(name, metric.help, metric.labels, registry=registry)
        case "histogram":
            return Counted(name, metric.help, metric.labels, buckets=metric.buckets, registry=registry)
    mode = metric.mode
    return Gauge(name, metric.help, metric.labels, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]


class Worker:
    """All metrics of this process."""

    def __init__(self, number: int, pools: Mapping[str, Pool]):
        registry = CollectorRegistry()
        self._metrics = {metric.name: made(metric, registry) for metric in OF_WORKERS}
        self.children: dict[TallyKey, Made] = {}
        self._process, self._pools = str(number), pools
        self._connections: WeakSet[BaseDatabaseWrapper] = WeakSet()
        self._asked: deque[tuple[float, float]] = deque()  # when, and how many questions then
        self._processor = 0.0  # seconds of processor time that are written down
        self._of_replicas: dict[TallyKey, int] = {}  # the counts of replicas that are written down
        self._writing = threading.Lock()
        self.tallies = Tallies()

    def connected(self, connection: BaseDatabaseWrapper, **_: object) -> None:
        """Count a connection that was made; Django's signal calls this."""
        self._connections.add(connection)
        self.tallies.count("connections_opened")

    def write(self) -> None:
        """Write what was counted since the last time, and the present values of gauges."""
        with self._writing:
            taken = self.tallies.take()
            for key, number in taken.counts.items():
                child = self.child(key) if key[0] in METRICS else None
                if isinstance(child, Counter):
                    child.inc(number)
            for key, times in taken.times.items():
                child = self.child(key)
                assert isinstance(child, Counted), "what has buckets is a histogram"
                child.add(times)
            self._count_processor()
            self._count_replicas()
            for key, value in self._levels(taken):
                child = self.child(key)
                assert isinstance(child, Gauge), "what goes up and down is a gauge"
                child.set(value)

    def child(self, key: TallyKey) -> Made:
        found = self.children.get(key)
        if found is None:
            metric = self._metrics[key[0]]
            found = self.children[key] = metric.labels(*key[1:]) if len(key) > 1 else metric
        return found

    def _count_processor(self) -> None:
        seconds = time.process_time()
        child = self.child(("process_cpu_seconds", self._process))
        assert isinstance(child, Counter)
        child.inc(seconds - self._processor)
        self._processor = seconds

    def _count_replicas(self) -> None:
        for each in standings():
            repeated = max(0, each.tries - each.answers - each.asked)
            for outcome, number in (("counted", each.answers), ("repeated", repeated)):
                key = ("replica_answers", each.name, outcome)
                child = self.child(key)
                assert isinstance(child, Counter)
                child.inc(max(0, number - self._of_replicas.get(key, 0)))
                self._of_replicas[key] = max(number, self._of_replicas.get(key, 0))

    def _levels(self, taken: Taken) -> Iterator[tuple[TallyKey, float]]:
        yield ("questions_a_minute",), self._a_minute(taken.counts.get(("questions",), 0))
        yield ("loads_under_way",), spans.under_way["load"]
        for name, pool in self._pools.items():
            yield ("threads_busy", name), pool.busy
            yield ("threads", name), pool.size
            yield ("requests_waiting", name), pool.waiting
        yield ("connections_open",), sum(each.connection is not None for each in _listed(self._connections))
        yield ("process_resident_memory_bytes", self._process), memory()
        for each in standings():
            if each.tries or each.position is not None:  # otherwise nothing is known yet
                yield ("replica_used", each.name), each.is_used
                yield ("replica_position", each.name), each.position or 0
                if each.lag is not None:
                    yield ("replica_lag_seconds", each.name), each.lag

    def _a_minute(self, questions: float) -> float:
        now = time.monotonic()
        if questions:
            self._asked.append((now, questions))
        while self._asked and self._asked[0][0] < now - MINUTE:
            self._asked.popleft()
        return sum(number for _, number in self._asked)


def _listed(connections: WeakSet[BaseDatabaseWrapper]) -> Sequence[BaseDatabaseWrapper]:
    """Return the connections as a list, though threads may add some meanwhile; an empty one after ten failures."""
    for _ in range(10):
        try:
            return list(connections)
        except RuntimeError:  # it grew meanwhile
            continue
    return ()


def memory() -> int:
    """Return the bytes of this process that are in memory; where the system does not say, their peak so far."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def start(number: int, pools: Mapping[str, Pool]) -> Worker:
    """Begin to observe, as the worker with this number, and to write metrics for as long as the process lives."""
    folder.claim(os.getpid())
    worker = Worker(number, pools)
    connection_created.connect(worker.connected)
    observing.observe(worker.tallies.seen)
    spans.listen((worker.tallies.noted,))
    worker.write()
    threading.Thread(target=_keep_writing, args=(worker,), name="metrics", daemon=True).start()
    return worker


def _keep_writing(worker: Worker) -> None:
    while True:
        time.sleep(PAUSE)
        try:
            worker.write()
        except Exception:  # such as a full disk; what was written before is still there
            log.exception("metrics cannot be written down")
            time.sleep(MINUTE)
