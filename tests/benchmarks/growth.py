"""The same questions over few facts and over many, by turns.

    python -m tests.benchmarks.growth --database sqlite [--sizes 10000 1000000] [--only "folders"]

Prints p50 of each kind and of the empty view over each size, and the growth between the ends. Every turn has a
connection of its own: which process it meets, and on which processor, is luck that all sizes are to have alike.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, closing

from tests.benchmarks.clients import Clients
from tests.benchmarks.generate import Size
from tests.benchmarks.kinds import Kind, kinds
from tests.benchmarks.served import Served, served
from tests.benchmarks.service import Side, Verdict, constant, print_verdicts

ROUNDS = 30
MOST = 1.3


def main() -> int:
    options = parsed()
    with ExitStack() as stack:
        servers = [stack.enter_context(served(options.database, Size(facts))) for facts in options.sizes]
        of_sizes = [[each for each in kinds(server, options.only) if is_asked(each)] for server in servers]
        return print_verdicts(grown(servers, same) for same in zip(*of_sizes))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--only", default="", help="part of a question's name")
    return parser.parse_args()


def is_asked(kind: Kind) -> bool:
    return kind.path == "/authorize" and "context" not in kind.name


def grown(servers: list[Served], same: tuple[Kind, ...]) -> Verdict:
    sides, empty = [Side() for _ in servers], [Side() for _ in servers]
    for _ in range(ROUNDS):
        for index, (server, kind) in enumerate(zip(servers, same)):
            with closing(Clients(server.port, 1)) as client:
                client.ask(kind.requests, 0.1)
                sides[index].add(client.ask(kind.requests, 0.2))
                empty[index].add(client.ask([constant(server, "/empty")], 0.1))
    middles = [side.at(0.5) for side in sides]
    growth = middles[-1] / middles[0]
    shown = ", ".join(f"{each:,.0f} us beside {other.at(0.5):,.0f}" for each, other in zip(middles, empty))
    return f"{same[0].name}: growth of p50 <= {MOST}", f"{growth:.2f}: {shown} of the empty view", growth <= MOST


if __name__ == "__main__":
    sys.exit(main())
