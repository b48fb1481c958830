"""Two checkouts side by side over HTTP: processor time of an answer, and how many there are in a second.

    git worktree add --detach ../before COMMIT
    ANSWER_CACHE=0 python -m tests.benchmarks.checkouts ../before [--database postgres] [--only lists] [--turns 8]

Without `ANSWER_CACHE=0`, what is asked again is answered from the cache.

Each side has a server and a database of its own, with the same facts, and is asked the same by clients whose
connections stay open. The sides take turns. Processor time is that of the server's processes and, beside it, of
PostgreSQL's; it is what to go by while the machine has other things to do. Every answer is compared with what the
statement by hand says of it.

The same checkout may be both sides, with other options of `serve` or by another Python:
`. --options "--threads 2" --others "--threads 4"`, `. --python ~/python3.13/bin/python`. Or this one runs behind
PgBouncer, whose processor time then counts as the database's:
`. --database postgres --pooled 20 --options "--threads 100" --others "--threads 100" --clients 200`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from tests.benchmarks.clients import Clients, Request
from tests.benchmarks.generate import Size
from tests.benchmarks.kinds import Kind, kinds
from tests.benchmarks.served import How, Served, served
from tests.service import ROOT

HEAD = f"{'':34}{'clients':>8}{'server':>9}{'database':>10}{'together':>10}{'p50':>8}{'p99':>8}{'/s':>8}"


def main() -> None:
    asked = parsed()
    with ExitStack() as stack:
        sides = [
            stack.enter_context(served(asked.database, Size(asked.facts), how=how))
            for how in (
                How(asked.other.resolve(), sys.executable, tuple(asked.others.split())),
                How(ROOT, asked.python, tuple(asked.options.split()), asked.pooled),
            )
        ]
        other, mine = sides
        print(f"{asked.facts:,} facts on {asked.database}; microseconds; the other, this one, and their ratio")
        print(HEAD)
        for kind in kinds(mine, asked.only):
            requests = [sent_with(other.key, mine.key, kind), kind.requests]
            for count in asked.clients:
                show(kind.name, count, measured(sides, requests, count, asked.turns, asked.seconds))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the checkout to compare this one with")
    parser.add_argument("--facts", type=int, default=10_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--only", default="direct role", help="part of a question's name")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each turn")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--pooled", type=int, default=0, help="connections of a PgBouncer to the database of this one")
    parser.add_argument("--options", default="", help="of this one's `serve`")
    parser.add_argument("--others", default="", help="of the other's")
    parser.add_argument("--python", default=sys.executable, help="that this one is served by")
    return parser.parse_args()


def sent_with(key: str, instead: str, kind: Kind) -> list[Request]:
    """The same questions, with the same truth, from another key."""
    return [Request(each.sent.replace(instead.encode(), key.encode()), each.is_right) for each in kind.requests]


# ---- measuring ------------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """Of each turn: microseconds of a processor for an answer, and answers in a second. Of all: how long each took."""

    server: list[float] = field(default_factory=list)
    database: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def figures(self) -> list[float]:
        server, database = median(self.server), median(self.database)
        times = sorted(self.times)
        p50, p99 = (times[int(len(times) * share)] * 1e6 for share in (0.5, 0.99))
        return [server, database, server + database, p50, p99, median(self.rates)]


def measured(
    sides: Sequence[Served], requests: Sequence[list[Request]], count: int, turns: int, seconds: float
) -> list[Measured]:
    found = [Measured() for _ in sides]
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(Clients(side.port, count))) for side in sides]
        for each, asked in zip(clients, requests):
            each.ask(asked, 2.0)  # statements are prepared, for each thread of the server
        for _ in range(turns):
            for side, each, asked, result in zip(sides, clients, requests, found):
                turn(side, each, asked, seconds, result)
    return found


def turn(side: Served, clients: Clients, requests: list[Request], seconds: float, result: Measured) -> None:
    server, database = used(psutil.Process(side.service.process.pid)), used(side.postgresql, side.pooler)
    asked = clients.ask(requests, seconds)
    answers = len(asked.times)
    result.server.append((used(psutil.Process(side.service.process.pid)) - server) / answers * 1e6)
    result.database.append((used(side.postgresql, side.pooler) - database) / answers * 1e6)
    result.rates.append(answers / asked.seconds)
    result.times += asked.times


def used(*processes: psutil.Process | None) -> float:
    """Seconds of a processor, by processes and those that they started, also where these have ended."""
    all_of = [part for each in processes if each for part in (each, *each.children(recursive=True))]
    return sum(sum(each.cpu_times()[:4]) for each in all_of)


# ---- showing --------------------------------------------------------------------------------------------------------


def show(name: str, count: int, found: Sequence[Measured]) -> None:
    other, mine = (each.figures() for each in found)
    print(f"{name:34}{count:>8}" + row(other, "{:,.0f}"))
    print(f"{'':34}{'':>8}" + row(mine, "{:,.0f}"))
    ratios = [after / before if before else 0.0 for before, after in zip(other, mine)]
    print(f"{'':34}{'':>8}" + row(ratios, "{:.2f}"), flush=True)


def row(figures: Sequence[float], how: str) -> str:
    return "".join(f"{how.format(figure):>{width}}" for figure, width in zip(figures, (9, 10, 10, 8, 8, 8)))


if __name__ == "__main__":
    main()
