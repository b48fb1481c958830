"""What metrics, or the access log, cost: answers a second with them and without, and processor time of each.

    python -m tests.benchmarks.metrics [--what access-log] [--facts 10000] [--database postgres] [--rounds 12]

Two servers over the same facts take turns. One watches nothing at all, not even for slow questions; the other has
`--metrics-port` and is scraped as usual, or writes a line for each request (`access-log`, `access-log-json`), or
only looks for slow questions, as it does by default (`slow`). With `nothing` both are alike: figures that are not 1
then are the machine's doing, which was up to 6 %. What differs by less than that, `observing` shows.

To be met: 0.95 of the throughput without (`--mark`), for each kind of question: where a processor is what limits it,
that is the ratio of processor time of an answer, which is what to go by while the machine has other things to do.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import requests

from tests.benchmarks.again import Side
from tests.benchmarks.decision_log import Measured, cells, measured
from tests.benchmarks.generate import Size
from tests.benchmarks.served import VARIABLES, Served, served
from tests.postgresql import free_port
from tests.service import Service, start_service

SCRAPED_EVERY = 15.0  # seconds, as Prometheus does it
BY_SETTINGS = {
    "nothing": {},
    "slow": {"SLOW_QUESTION_MS": "500"},
    "access-log": {"SLOW_QUESTION_MS": "500", "ACCESS_LOG": "1"},
    "access-log-json": {"SLOW_QUESTION_MS": "500", "ACCESS_LOG": "1", "LOG_FORMAT": "json"},
}


def main() -> int:
    options = parsed()
    are_met = True
    os.environ["SLOW_QUESTION_MS"] = "0"  # of both servers, unless more is said of the other
    with served(options.database, Size(options.facts)) as server, watching(server, options.what) as other:
        sides = Side(server.service, server.url), Side(other, server.url)
        print(f"{options.facts:,} facts on {options.database}; without and with: {options.what}")
        print(f"{'':42}{'ms of a processor':>20}{'without/with':>14}{'':9}{'answers a second':>18}{'with/without':>14}")
        for name, asking in cells(server):
            found: tuple[list[Measured], list[Measured]] = ([], [])
            for turn in range(options.rounds + 1):
                for place in (0, 1) if turn % 2 else (1, 0):
                    found[place].append(measured(sides[place], asking(place), options.seconds))
            are_met &= show(name, found, options.mark)
    return 0 if are_met else 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", choices=("metrics", *BY_SETTINGS), default="metrics")
    parser.add_argument("--facts", type=int, default=10_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--mark", type=float, default=0.95, help="of the throughput without")
    return parser.parse_args()


@contextmanager
def watching(server: Served, what: str) -> Iterator[Service]:
    """Another server over the same database, which does this."""
    if what == "metrics":
        with counting(server) as other:
            yield other
        return
    folder = server.folder / what
    folder.mkdir()
    service = start_service(folder, server.url, **VARIABLES | BY_SETTINGS[what])
    try:
        yield service
    finally:
        service.stop()


@contextmanager
def counting(server: Served) -> Iterator[Service]:
    """Another server over the same database, with metrics, and somebody who reads them."""
    folder, port, ended = server.folder / "counting", free_port(), threading.Event()
    folder.mkdir()
    service = start_service(folder, server.url, "--metrics-port", str(port), **VARIABLES)

    def scrape() -> None:
        while not ended.wait(SCRAPED_EVERY):
            requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30).raise_for_status()

    scraper = threading.Thread(target=scrape, daemon=True)
    scraper.start()
    try:
        yield service
    finally:
        ended.set()
        scraper.join()
        service.stop()


def show(name: str, found: tuple[list[Measured], list[Measured]], mark: float) -> bool:
    """Turns are compared with those beside them; the first ones are to warm up."""
    pairs = list(zip(*(side[1:] for side in found)))
    work = median(off.milliseconds / on.milliseconds for off, on in pairs)
    rate = median(on.rate / off.rate for off, on in pairs)
    off, on = ([median(figure) for figure in zip(*((e.milliseconds, e.rate) for e in side[1:]))] for side in found)
    verdict = "met" if work >= mark else "not met"
    print(
        f"{name:42}{off[0]:10.3f}{on[0]:10.3f}{work:14.3f}  {verdict:7}{off[1]:9,.0f}{on[1]:9,.0f}{rate:14.3f}",
        flush=True,
    )
    return work >= mark


if __name__ == "__main__":
    sys.exit(main())
