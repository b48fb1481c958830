"""The same questions over few facts and over many, by turns.

    python -m tests.benchmarks.growth --database sqlite [--sizes 10000 1000000] [--only "folders"]

Prints p50 of each kind over each size, as it is and without the empty view's, and the growth between the ends.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, closing

from tests.benchmarks.clients import Clients, request
from tests.benchmarks.generate import Size
from tests.benchmarks.kinds import Kind, kinds
from tests.benchmarks.served import Served, served
from tests.benchmarks.service import EMPTY, Side, Verdict, print_verdicts

ROUNDS = 10
MOST = 1.3


def main() -> int:
    options = parsed()
    with ExitStack() as stack:
        servers = [stack.enter_context(served(options.database, Size(facts))) for facts in options.sizes]
        clients = [stack.enter_context(closing(Clients(server.port, 1))) for server in servers]
        of_sizes = [[each for each in kinds(server, options.only) if is_asked(each)] for server in servers]
        return print_verdicts(grown(servers, clients, same) for same in zip(*of_sizes))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--only", default="", help="part of a question's name")
    return parser.parse_args()


def is_asked(kind: Kind) -> bool:
    return kind.path == "/authorize" and "context" not in kind.name


def grown(servers: list[Served], clients: list[Clients], same: tuple[Kind, ...]) -> Verdict:
    sides, empty = [Side() for _ in servers], Side()
    nothing = [request(servers[0].key, "/empty", EMPTY, lambda said: said == {"allowed": True})]
    for each, kind in zip(clients, same):
        each.ask(kind.requests, 0.5)
    for _ in range(ROUNDS):
        empty.add(clients[0].ask(nothing, 0.2))
        for side, each, kind in zip(sides, clients, same):
            side.add(each.ask(kind.requests, 0.2))
    middles = [side.at(0.5) for side in sides]
    growth = middles[-1] / middles[0]
    said = f"{growth:.2f}: {', '.join(f'{each:,.0f}' for each in middles)} us, empty view {empty.at(0.5):,.0f}"
    return f"{same[0].name}: growth of p50 <= {MOST}", said, growth <= MOST


if __name__ == "__main__":
    sys.exit(main())
