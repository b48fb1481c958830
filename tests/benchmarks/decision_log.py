"""What the decision log costs: answers a second with it and without, and processor time of each.

    python -m tests.benchmarks.decision_log --facts 100000 --database postgres [--seconds 2] [--rounds 5]

Two servers over the same facts take turns, one of which logs. To be met: 0.95 of the answers a second, for each kind of
question (`--mark`). At the end the log is read: it has a line for each answer, or says how many it left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

from checks.decisions.lines import BadLine, lines_of
from tests.benchmarks.again import Side, batch_of, new_questions
from tests.benchmarks.clients import Clients, Request
from tests.benchmarks.generate import Size
from tests.benchmarks.kinds import kinds
from tests.benchmarks.served import VARIABLES, Served, served
from tests.service import Service, start_service

CLIENTS = 4
AGAIN, AT_ONCE = 100, 50


class Measured(NamedTuple):
    """Of one turn."""

    answers: int
    seconds: float
    milliseconds: float  # of a processor, for each answer

    @property
    def rate(self) -> float:
        return self.answers / self.seconds


def main() -> int:
    options = parsed()
    are_met = True
    with served(options.database, Size(options.facts)) as server, logging(server) as (other, path):
        sides = Side(server.service, server.url), Side(other, server.url)
        logged = 0
        print(f"{options.facts:,} facts on {options.database}; answers a second without the log and with it")
        for name, asking in cells(server):
            found: tuple[list[Measured], list[Measured]] = ([], [])
            for turn in range(options.rounds + 1):
                for place in (0, 1) if turn % 2 else (1, 0):
                    found[place].append(measured(sides[place], asking(place), options.seconds))
            logged += sum(each.answers for each in found[1]) + CLIENTS * len(found[1])
            are_met &= show(name, found, options.mark)
        other.stop()
        show_log(path, logged, other.log)
    return 0 if are_met else 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mark", type=float, default=0.95, help="of the answers a second without")
    return parser.parse_args()


@contextmanager
def logging(server: Served) -> Iterator[tuple[Service, Path]]:
    """Another server over the same database, which logs."""
    folder = server.folder / "logging"
    folder.mkdir()
    path = folder / "decisions.jsonl"
    service = start_service(folder, server.url, **VARIABLES | {"DECISION_LOG": str(path)})
    try:
        yield service, path
    finally:
        service.stop()


def measured(side: Side, requests: list[Request], seconds: float) -> Measured:
    with closing(Clients(int(side.service.origin.rpartition(":")[2]), CLIENTS)) as clients:
        clients.ask(requests[:CLIENTS], 0)
        used, others, started = side.used(), side.used_by_database(), time.monotonic()
        answers = len(clients.ask(requests[CLIENTS:], seconds).times)
        taken = time.monotonic() - started
        return Measured(answers, taken, (side.used() - used + side.used_by_database() - others) / answers / 1e6)


def show(name: str, found: tuple[list[Measured], list[Measured]], mark: float) -> bool:
    """Turns are compared with those beside them; the first ones are to warm up."""
    pairs = list(zip(*(side[1:] for side in found)))
    rate = median(on.rate / off.rate for off, on in pairs)
    work = median(on.milliseconds / off.milliseconds for off, on in pairs)
    off, on = (median(each.rate for each in side[1:]) for side in found)
    times = [median(each.milliseconds for each in side[1:]) for side in found]
    verdict = "met" if rate >= mark else "not met"
    print(
        f"{name:42}{off:9,.0f}{on:9,.0f}{rate:7.3f}  {verdict:8}"
        f" processor: {times[0]:.3f} and {times[1]:.3f} ms, {work:.3f}",
        flush=True,
    )
    return rate >= mark


def show_log(path: Path, answers: int, log: Path) -> None:
    with path.open("rb") as file:
        bad = lines = 0
        for line in lines_of(file):
            lines, bad = lines + 1, bad + isinstance(line, BadLine)
    left_out = [line for line in log.read_text().splitlines() if "decision log" in line]
    print(
        f"{lines:,} lines of about {answers:,} answers, {bad} unreadable, {path.stat().st_size / lines:,.0f} bytes each"
    )
    print("\n".join(left_out))


def cells(server: Served) -> Iterator[tuple[str, object]]:
    rng, numbers = Random(5), count()
    pools: dict[int, list[Request]] = {}

    def new(place: int) -> list[Request]:
        """The same for both sides, one after the other."""
        if place in pools:
            return pools.pop(place)
        made = list(new_questions(server, rng, 10_000, next(numbers)))
        pools[1 - place] = made
        return made

    asked = [each for each in kinds(server) if "context" not in each.name]
    checks = [request for each in asked if each.path == "/authorize" for request in each.requests]
    rng.shuffle(checks)
    batches = [batch_of(server, rng.sample(checks, AT_ONCE)) for _ in range(40)]
    yield "new questions", new
    yield f"{AGAIN} questions again and again", lambda place: checks[:AGAIN]
    yield f"{AT_ONCE} checks by /authorize_each", lambda place: batches
    for each in asked:
        if each.path == "/list":
            yield each.name, lambda place, requests=each.requests: requests


if __name__ == "__main__":
    sys.exit(main())
