"""Every kind of question over HTTP, beside the empty view of the same server and the statement by hand.

    python -m tests.benchmarks.service --facts 100000 --database sqlite [--only "folders"] [--seconds 5]
    python -m tests.benchmarks.service --moments

Prints for one client and for four, each with a connection that stays open, how long answers take and how many there
are in a second; and at the end what of the targets is met. The sides of a row take turns, so that what else the machine
does is on all of them. Every answer is compared with what the statement by hand says.

The empty view trusts the key that it is sent; `confirmed` is one that has the database confirm it, as every answer of
the product does: the difference is what the way to the database and back costs, whatever is asked there.

The second measures changes, chains of folders, starts and memory instead.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle

from tests.benchmarks.clients import Asked, Clients, Request, request
from tests.benchmarks.generate import Size
from tests.benchmarks.kinds import Kind, kinds
from tests.benchmarks.moments import Verdict, moments
from tests.benchmarks.served import Served, served

ROUNDS = 8
EMPTY = {"actor_type": "User", "actor_id": "user-1", "action": "read", "resource_type": "Repo", "resource_id": "repo-1"}


def main() -> int:
    asked = parsed()
    with served(asked.database, Size(asked.facts)) as server:
        if asked.moments:
            return print_verdicts(moments(server))
        stored = server.database.prepared("SELECT count(*) FROM authz_fact")({})[0][0]
        print(f"{stored:,} facts on {asked.database}, loaded at {stored / server.loading[0]:,.0f} facts/s")
        rows = list(measured(server, asked.only, asked.seconds))
    print()
    return print_verdicts(judged({row.kind.name: row for row in rows}))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--only", default="", help="part of a question's name")
    parser.add_argument("--seconds", type=float, default=7.0, help="for each row of the table")
    parser.add_argument("--moments", action="store_true", help="what is measured once and not in a row")
    return parser.parse_args()


# ---- measuring ---------------------------------------------------------------------------------------------------


@dataclass
class Side:
    """All that was measured of one of the sides."""

    times: list[float] = field(default_factory=list)
    seconds: float = 0.0
    busy: float = 0.0

    def add(self, asked: Asked) -> None:
        self.times += asked.times
        self.seconds += asked.seconds
        self.busy += asked.busy

    def at(self, share: float) -> float:
        """In microseconds."""
        return sorted(self.times)[min(len(self.times) - 1, int(len(self.times) * share))] * 1e6

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds


@dataclass
class Row:
    kind: Kind
    acts: Iterator[Callable[[], object]] = field(init=False)  # by hand, one sample after the other
    bare: Side = field(default_factory=Side)
    empty: Side = field(default_factory=Side)
    confirmed: Side = field(default_factory=Side)
    mine: Side = field(default_factory=Side)
    empty_of_four: Side = field(default_factory=Side)
    confirmed_of_four: Side = field(default_factory=Side)
    mine_of_four: Side = field(default_factory=Side)

    def __post_init__(self):
        self.acts = cycle(self.kind.bare)

    @property
    def share(self) -> float:
        """Of the empty view's throughput, with four clients."""
        return self.mine_of_four.rate / self.empty_of_four.rate

    @property
    def share_of_confirmed(self) -> float:
        return self.mine_of_four.rate / self.confirmed_of_four.rate

    @property
    def weight(self) -> float:
        """How many empty views it takes, as a measure to compare rows by."""
        return self.mine.at(0.5) / self.empty.at(0.5)


HEAD = f"{'in us':32}{'by hand':>9}{'empty':>7}{'confirmed':>11}{'p50':>9}{'p95':>9}{'p99':>9}{'/s':>7}"
HEAD += f"{'4: p50':>10}{'p99':>9}{'/s':>7}{'empty/s':>9}{'share':>7}{'of conf.':>10}{'clients':>9}  answers"


def measured(server: Served, only: str, seconds: float) -> Iterator[Row]:
    print(HEAD)
    nothing, confirmed = ([constant(server, path)] for path in ("/empty", "/confirmed"))
    with closing(Clients(server.port, 1)) as one, closing(Clients(server.port, 4)) as four:
        for kind in kinds(server, only):
            row = Row(kind)
            for clients in (one, four):
                clients.ask(nothing, 0.1)
                clients.ask(confirmed, 0.1)
                clients.ask(kind.requests, 0.5)  # statements are prepared, for each thread of the server
            gc.collect()
            for _ in range(ROUNDS):
                take_turns(row, nothing, confirmed, one, four, seconds / ROUNDS / 7)
            print(line(row), flush=True)
            yield row


def constant(server: Served, path: str) -> Request:
    """To a view that answers the same whatever it is asked."""
    return request(server.key, path, EMPTY, lambda said: said == {"allowed": True})


def take_turns(
    row: Row, nothing: list[Request], confirmed: list[Request], one: Clients, four: Clients, seconds: float
) -> None:
    row.bare.add(by_hand(row.acts, seconds))
    row.empty.add(one.ask(nothing, seconds))
    row.confirmed.add(one.ask(confirmed, seconds))
    row.mine.add(one.ask(row.kind.requests, seconds))
    row.empty_of_four.add(four.ask(nothing, seconds))
    row.confirmed_of_four.add(four.ask(confirmed, seconds))
    row.mine_of_four.add(four.ask(row.kind.requests, seconds))


def by_hand(acts: Iterator[Callable[[], object]], seconds: float) -> Asked:
    times: list[float] = []
    started = began = time.perf_counter()
    while started < began + seconds:
        next(acts)()
        times.append(-started + (started := time.perf_counter()))
    return Asked(times, started - began, 0.0)


def line(row: Row) -> str:
    mine, four = row.mine, row.mine_of_four
    text = f"{row.kind.name:32}{row.bare.at(0.5):>9,.0f}{row.empty.at(0.5):>7,.0f}{row.confirmed.at(0.5):>11,.0f}"
    text += "".join(f"{mine.at(share):>9,.0f}" for share in (0.5, 0.95, 0.99)) + f"{mine.rate:>7,.0f}"
    text += f"{four.at(0.5):>10,.0f}{four.at(0.99):>9,.0f}{four.rate:>7,.0f}{row.empty_of_four.rate:>9,.0f}"
    text += f"{row.share:>7.2f}{row.share_of_confirmed:>10.2f}{four.busy / four.seconds:>8.0%}"
    return f"{text}   {row.kind.answers}"


# ---- targets -----------------------------------------------------------------------------------------------------

ALSO = {"actions on a repository": "organisation", "actions on a document": "folders and groups"}


def print_verdicts(verdicts: Iterable[Verdict]) -> int:
    missed = 0
    for what, said, is_met in verdicts:
        print(f"{'met   ' if is_met else 'MISSED'}  {what:58}{said}", flush=True)
        missed += not is_met
    return 1 if missed else 0


def judged(rows: dict[str, Row]) -> Iterator[Verdict]:
    for name, row in rows.items():
        plain = rows.get(name.removesuffix(", context"))
        if plain is None or plain is row:
            yield from judged_alone(row)
        else:
            yield compared(f"{name} <= 2 x without", row, plain)
        if ALSO.get(name) in rows:
            yield compared(f"{name} <= 2 x authorize", row, rows[ALSO[name]])


def judged_alone(row: Row) -> Iterator[Verdict]:
    name, path, mine = row.kind.name, row.kind.path, row.mine.at(0.5)
    if path == "/authorize":
        yield f"{name}: throughput >= 0.7 of the empty view", f"{row.share:.2f}", row.share >= 0.7
        most = row.empty.at(0.5) + 1.5 * row.bare.at(0.5)
        yield f"{name}: p50 <= empty + 1.5 x by hand", f"{mine:,.0f} us, wanted {most:,.0f}", mine <= most
        most += row.confirmed.at(0.5) - row.empty.at(0.5)
        yield f"{name}: p50 <= confirmed + 1.5 x by hand", f"{mine:,.0f} us, wanted {most:,.0f}", mine <= most
    elif path == "/list":
        most = 3 * row.bare.at(0.5)
        if name.startswith("10,000"):
            yield f"{name}: p50 <= 3 x (by hand + JSON)", f"{mine:,.0f} us, wanted {most:,.0f}", mine <= most
    elif path == "/authorize_resources":
        yield f"{name}: p50 <= 30 ms", f"{mine / 1000:,.1f} ms", mine <= 30_000


def compared(what: str, row: Row, other: Row) -> Verdict:
    """In empty views, which the machine's other work slows down as well."""
    ratio = row.weight / other.weight
    return what, f"{ratio:.2f}", ratio <= 2


if __name__ == "__main__":
    sys.exit(main())
