"""The metrics of all workers together, out of their files; what workers counted that have ended is kept.

Only the server's parent tidies up. A worker's files are named by its process, `counter_123.db`: once that has ended,
what it counted is added to `counter_ended.db`, and what was only so while it lived is dropped.
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
_HEAD = 8  # bytes, that a file has once there is something to read in it


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
        """Return how many workers there are."""
        return sum(not folder.has_ended(self._path, each) for each in folder.workers(self._path))

    def tidy(self) -> None:
        """Put away what belongs to workers that have ended."""
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
    """Return what the files say that are there."""
    files = [str(each) for each in path.glob("*.db") if _is_readable(each)]
    yield from MultiProcessCollector.merge(files)


def value_of(path: Path, name: str) -> float | None:
    """Return the sum of a metric's samples; None where there is none."""
    for metric in merged(path):
        if metric.name == name:
            return sum(sample.value for sample in metric.samples)
    return None


def _is_readable(file: Path) -> bool:
    """Whether there is something in it: a worker may be making it just now, or have ended while it did."""
    try:
        return file.stat().st_size >= _HEAD
    except FileNotFoundError:
        return False
