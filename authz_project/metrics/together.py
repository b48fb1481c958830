"""Merges the metrics of all workers from their files, and keeps what workers that have ended counted.

Only the server's parent process tidies up. A worker's files are named by its process id, such as `counter_123.db`. Once
that process has ended, its counters and histograms are added to `counter_ended.db` and `histogram_ended.db`, and its
gauges are dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

from authz_project.metrics import folder

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
