"""Questions and changes for a long time, at a steady rate: does the service stay as it is?

    python -m tests.faults.soak --minutes 60 --rate 50 [--database postgres]

Without a rate it is seven tenths of what the service can. Beside them, a few times a second, comes what is less usual:
bodies that are cut off, connections for one request, context facts, long polls that a change wakes, and new policies.
Decisions are logged.

Memory is all of the server's processes, without what they share with one another. The first third, or ten minutes, is
for caches to fill; from then on, a line is fitted to the memory of a worker. The last third is compared with the one in
the middle as well. On SQLite the size of its log is told.
"""

from __future__ import annotations

import socket
import statistics
import sys
import threading
import time
from contextlib import suppress
from typing import NamedTuple

import psutil

from tests.faults.load import How, Load, Told, quantile, request_of, statuses
from tests.faults.marks import Mark, at_most, kinds_of, none_of, parser_of, printed
from tests.faults.worlds import POLICY, Changes, Questions, World, fact, port_of, question, world
from tests.service import Client, Service

SHARE = 0.7  # of what the service can
OF_CHANGES = 0.1  # of the requests
GROWTH = 1.05  # of memory, at most
SLOPE = 2.0  # MB an hour for each worker, at most
WORKERS = 2
SETTLED = 600.0  # seconds
SLOWER = 1.25  # p99, beside that of the third before: two runs of the same differ by less
ROUND = 20_000  # numbers after which the same facts are stored again, so that there are no more and more of them


class Soaked(NamedTuple):
    asked: list[Told]
    told: list[Told]
    memory: list[tuple[float, float]]  # when, and how many MB
    wrong: int
    log: float  # MB, the largest


class SameChanges(Changes):
    """Round and round."""

    def __call__(self, number: int) -> bytes:
        return super().__call__(number % ROUND)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; 0: what the machine allows")
    options = parser.parse_args()
    failed = 0
    for kind in kinds_of(options):
        with world(kind) as place:
            found = soaked(place, options.minutes * 60, options.rate)
            failed |= printed(marks(found), f"\n{kind}, {options.minutes:g} minutes")
    return failed


def marks(found: Soaked) -> list[Mark]:
    both = sorted([*found.asked, *found.told], key=lambda each: each.at)
    failed = len(both) - statuses(both)[200]
    _, middle, last = _thirds(both)
    growth = _mean(found.memory, last[0].at, last[-1].at) / _mean(found.memory, middle[0].at, last[0].at)
    slower = quantile(last, 0.99) / quantile(middle, 0.99)
    return [
        none_of("failed", failed, len(both)),
        none_of("answered wrong", found.wrong, len(found.asked)),
        _growth(found.memory),
        at_most("memory, last third beside the middle one", GROWTH, growth, " times"),
        at_most("p99, last third beside the middle one", SLOWER, slower, " times"),
        Mark("memory at the end", "any", f"{found.memory[-1][1]:.0f} MB", True),
        Mark("p50, p99", "any", f"{quantile(last, 0.5) * 1000:.2f}, {quantile(last, 0.99) * 1000:.1f} ms", True),
        Mark("SQLite's log at its largest", "any", f"{found.log:.0f} MB", True),
    ]


def _thirds(told: list[Told]) -> tuple[list[Told], list[Told], list[Told]]:
    """Of the time."""
    first, span = told[0].at, (told[-1].at - told[0].at) / 3
    parts: tuple[list[Told], list[Told], list[Told]] = ([], [], [])
    for each in told:
        parts[min(2, int((each.at - first) / span))].append(each)
    return parts


def _mean(memory: list[tuple[float, float]], begin: float, end: float) -> float:
    return statistics.mean(megabytes for at, megabytes in memory if begin <= at <= end)


def _growth(memory: list[tuple[float, float]]) -> Mark:
    """Mark the growth of a worker; of a short run it says nothing."""
    growth = _slope(memory) / WORKERS
    if memory[-1][0] - memory[0][0] < SETTLED:
        return Mark("memory of a worker, each hour", "any", f"{growth:.2f} MB", True)
    return at_most("memory of a worker, each hour", SLOPE, growth, " MB")


def _slope(memory: list[tuple[float, float]]) -> float:
    """Return how many MB an hour all of it grows, once it has settled: the slope of the line that fits best."""
    first, last = memory[0][0], memory[-1][0]
    settled = first + min(SETTLED, (last - first) / 3)
    times, sizes = zip(*[(at, size) for at, size in memory if at >= settled])
    return statistics.linear_regression(times, sizes).slope * 3600


class Unusual:
    """What comes a few times a second beside the usual requests, until it is told to stop."""

    def __init__(self, place: World, client: Client, port: int):
        self.client, self.port, self.key = client, port, place.key
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.thread.join()

    def _run(self) -> None:
        number = 0
        while not self.is_over.wait(0.5):
            number += 1
            self._cut()
            body, _ = question(number)
            context = [fact("has_relation", ("Doc", f"c{number}-{n}"), "folder", ("Folder", "f1")) for n in range(50)]
            self.client.post("/authorize", body | {"context_facts": context})
            if number % 4 == 0:
                self._poll()
            if number % 60 == 0:
                self.client.post("/policy", {"src": f"{POLICY}# {number}"})

    def _cut(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(request_of(self.key, "POST", "/authorize", b"x" * 5_000)[:-1_000])

    def _poll(self) -> None:
        """Wait for a change; those that run beside make one soon."""
        body, _ = question(0)
        after = self.client.post("/authorize", body).headers["OsoOffset"]
        self.client.get("/changes", params={"after": after, "wait": "1"})


def soaked(place: World, seconds: float, rate: float = 0.0) -> Soaked:
    service = place.started("--workers", str(WORKERS), LOG_LEVEL="CRITICAL", DECISION_LOG=str(place.folder / "log"))
    client = place.filled(service)
    ports, questions, changes = [port_of(service)], Questions(place.key), SameChanges(place.key)
    asked = (rate or _capacity(ports, questions) * SHARE) * (1 - OF_CHANGES)
    told = min(asked * OF_CHANGES, _capacity(ports, changes) * SHARE)
    loads = [
        Load(ports, questions, How(connections=16, rate=asked, keeps_bodies=True)),
        Load(ports, changes, How(connections=8, rate=told)),
    ]
    until = time.perf_counter() + seconds
    threads = [threading.Thread(target=load.run, args=(until,)) for load in loads]
    for each in threads:
        each.start()
    memory, log = [], 0.0
    with Unusual(place, client, ports[0]):
        while time.perf_counter() < until:
            memory.append((time.perf_counter(), _megabytes(service)))
            log = max(log, _log_of(place))
            time.sleep(max(0.1, min(5.0, seconds / 60)))
    for each in threads:
        each.join()
    service.stop()
    wrong = sum(each.status == 200 and not questions.is_right(each.number, each.body) for each in loads[0].told)
    return Soaked(loads[0].told, loads[1].told, memory, wrong, log)


def _capacity(ports: list[int], made: Questions | Changes, seconds: float = 2.0) -> float:
    return len(Load(ports, made, How(connections=8)).for_seconds(seconds)) / seconds


def _megabytes(service: Service) -> float:
    total = 0
    for each in psutil.Process(service.process.pid).children(recursive=True):
        with suppress(psutil.Error):
            total += each.memory_full_info().uss
    return total / 1e6


def _log_of(place: World) -> float:
    return sum(each.stat().st_size for each in place.folder.glob("*.sqlite3-wal")) / 1e6


if __name__ == "__main__":
    sys.exit(main())
