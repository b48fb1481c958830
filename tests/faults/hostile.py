"""One question of ten seconds of work each second, for each of two workers: how long do the others wait?

    python -m tests.faults.hostile --seconds 30 [--database postgres]

The hostile question compares each of many documents with each other, and the service ends it at STATEMENT_TIMEOUT. A
few clients ask simple questions at a fifth of what the service can: first alone, then beside it, in turns.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from tests.faults.load import How, Load, Told, quantile, request_of, statuses
from tests.faults.marks import Mark, at_most, kinds_of, none_of, parser_of, printed
from tests.faults.worlds import LONG_QUESTION, Questions, World, fact, port_of, world

WORKERS = 2
SIZES = 8_000  # of documents: all pairs of them are more than anybody compares in ten seconds
SHARE = 0.2
SLOWER = 3
TURNS = 2


class Found(NamedTuple):
    alone: list[Told]
    beside: list[Told]
    refused: int  # hostile questions that were told to be too hard, or to come again
    hostile: int


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    failed = 0
    for kind in kinds_of(options):
        with world(kind) as place:
            failed |= printed(marks(attacked(place, options.seconds)), f"\n{kind}")
    return failed


def marks(found: Found) -> list[Mark]:
    slower = quantile(found.beside, 0.99) / quantile(found.alone, 0.99)
    both = [*found.alone, *found.beside]
    return [
        none_of("simple questions that failed", len(both) - statuses(both)[200], len(both)),
        none_of("hostile questions that were answered", found.hostile - found.refused, found.hostile),
        at_most("p99 of the simple ones, beside and alone", SLOWER, slower, " times"),
        Mark("p50 alone, beside", "any", _both(found, 0.5), True),
        Mark("p99 alone, beside", "any", _both(found, 0.99), True),
    ]


def _both(found: Found, share: float) -> str:
    return f"{quantile(found.alone, share) * 1000:.1f}, {quantile(found.beside, share) * 1000:.1f} ms"


def attacked(place: World, seconds: float, sizes: int = SIZES) -> Found:
    service = place.started("--workers", str(WORKERS), ANSWER_CACHE="0", STATEMENT_TIMEOUT="5", LOG_LEVEL="CRITICAL")
    client, ports, questions = place.filled(service), [port_of(service)], Questions(place.key)
    client.post("/batch", [{"inserts": [fact("size", ("Doc", f"x{n}"), ("Integer", "7")) for n in range(sizes)]}])
    rate = SHARE * len(Load(ports, questions, How(connections=4)).for_seconds(2)) / 2
    how, alone, beside = How(connections=8, rate=rate), [], []
    hostile = _Hostile(ports[0], place.key)
    for _ in range(TURNS):
        alone += Load(ports, questions, how).for_seconds(seconds / TURNS / 2)
        with hostile:
            time.sleep(1)
            beside += Load(ports, questions, how).for_seconds(seconds / TURNS / 2)
    service.stop()
    return Found(alone, beside, hostile.refused, hostile.sent)


class _Hostile:
    """Sends one for each worker in a second, while it lasts, and waits for all in the end."""

    def __init__(self, port: int, key: str):
        self.port, self.sent, self.refused = port, 0, 0
        self.request = request_of(key, "POST", "/evaluate_query", json.dumps(LONG_QUESTION).encode(), close=True)
        self.is_over, self.threads, self.lock = threading.Event(), [], threading.Lock()

    def __enter__(self) -> None:
        self.is_over.clear()
        self.threads = [threading.Thread(target=self._send)]
        self.threads[0].start()

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.threads[0].join()
        for each in self.threads:
            each.join()

    def _send(self) -> None:
        while not self.is_over.wait(1 / WORKERS):
            self.threads.append(threading.Thread(target=self._ask))
            self.threads[-1].start()

    def _ask(self) -> None:
        """On a bare socket: a client that takes milliseconds for itself would keep `Load` from its clock."""
        status = 0
        with suppress(OSError, ValueError), socket.create_connection(("127.0.0.1", self.port), 120) as connection:
            connection.sendall(self.request)
            status = int(connection.recv(1 << 16).split(b" ", 2)[1])
        with self.lock:
            self.sent += 1
            self.refused += status in (400, 503)


if __name__ == "__main__":
    sys.exit(main())
