"""Thousands of connections from strangers: are those who have a key answered meanwhile, and health checks?

    python -m tests.faults.strangers --connections 5000 --seconds 40 [--database postgres]

The strangers are of four kinds: idle ones, slow ones that send a request byte by byte, half-closed ones, and ones that
send 60 requests at once and read no answer. They come from one address, then from many; who is hung up on comes again.
In the end they no longer come again: whoever is still connected is to be let go within 30 seconds.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from multiprocessing.synchronize import Event
from typing import NamedTuple

import psutil
import requests

from tests.faults.load import How, Load, Told, quantile, statuses
from tests.faults.marks import Mark, at_most, kinds_of, none_of, parser_of, printed
from tests.faults.worlds import Questions, World, port_of, world
from tests.postgresql import free_port
from tests.service import Service

WORKERS = 2
WITHIN = 0.5  # seconds for an answer, for 99 of 100
LET_GO_WITHIN = 30.0  # seconds, and a few to notice it here
KINDS = ("idle", "slow", "half-closed") * 8 + ("never-reading",)
AGAIN = 5.0  # seconds until a stranger who was hung up on comes again
LARGE = b"GET /static/admin/css/base.css HTTP/1.1\r\nHost: 127.0.0.1\r\n"
ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class Stranger:
    def __init__(self, number: int, port: int, addresses: int):
        place = number % addresses
        self.kind = KINDS[number % len(KINDS)]
        self.source = f"127.{1 + place // 62_500}.{place // 250 % 250}.{place % 250 + 1}"
        self.port, self.socket, self.sent = port, None, 0
        self.next_at = 0.0

    def connect(self) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if self.kind == "never-reading":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.socket.bind((self.source, 0))
        self.socket.connect_ex(("127.0.0.1", self.port))
        self.sent = 0

    def act(self, now: float) -> None:
        """Send what this kind sends first, or next."""
        self.next_at = now + 3600
        with suppress(OSError):
            match self.kind:
                case "slow":
                    self.socket.send((LARGE + b"X-Filler: " + b"x" * 1000)[self.sent : self.sent + 1])
                    self.sent, self.next_at = self.sent + 1, now + 2.0
                case "half-closed":
                    self.socket.send(LARGE)
                    self.socket.shutdown(socket.SHUT_WR)
                case "never-reading":
                    self.socket.send((LARGE + b"\r\n") * 60)


def besiege(port: int, connections: int, addresses: int, is_over: Event) -> None:
    """Keep so many connections open. Once it is over, open no more."""
    epoll, strangers = select.epoll(), [Stranger(number, port, addresses) for number in range(connections)]
    by_number: dict[int, Stranger] = {}
    while True:
        now = time.monotonic()
        for each in strangers:
            if each.next_at <= now:
                if each.socket is not None:
                    each.act(now)
                elif not is_over.is_set():
                    each.connect()
                    each.next_at = now + 3600
                    by_number[each.socket.fileno()] = each
                    epoll.register(each.socket, select.EPOLLOUT | ENDED)
        for number, what in epoll.poll(0.05):
            each = by_number[number]
            if what & (select.EPOLLHUP | select.EPOLLERR) or (what & ~select.EPOLLOUT and each.kind != "half-closed"):
                del by_number[number]
                each.socket.close()
                each.socket, each.next_at = None, now + AGAIN
            elif what & select.EPOLLOUT:
                epoll.modify(number, ENDED)
                each.act(now)


class Siege:
    def __init__(self, port: int, connections: int, addresses: int):
        context = multiprocessing.get_context("spawn")
        self.is_over = context.Event()
        arguments = (port, connections, addresses, self.is_over)
        self.process = context.Process(target=besiege, args=arguments, daemon=True)

    def __enter__(self) -> Siege:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.join()

    def let_go(self, service: Service) -> float:
        """Let no stranger come again; return the seconds until the server has let go of all."""
        self.is_over.set()
        began = time.monotonic()
        while (taken := time.monotonic() - began) < LET_GO_WITHIN + 10 and held_by(service):
            time.sleep(0.5)
        return taken


def held_by(service: Service) -> int:
    """Return how many connections the server's processes have open on its port."""
    port, workers = port_of(service), psutil.Process(service.process.pid).children(recursive=True)
    return sum(each.raddr != () and each.laddr.port == port for worker in workers for each in _open(worker))


def wait_for_strangers(service: Service, least: int) -> None:
    until = time.monotonic() + 60
    while held_by(service) < least and time.monotonic() < until:
        time.sleep(0.05)


def _open(worker: psutil.Process) -> list:
    with suppress(psutil.Error):
        return worker.net_connections("tcp")
    return []


class Probes:
    """Asks for health again and again, each time on a new connection."""

    def __init__(self, port: int, path: str):
        self.load = Load([port], lambda _: f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode(), PROBING)

    def __enter__(self) -> list[Told]:
        self.thread = threading.Thread(target=self.load.run)
        self.thread.start()
        return self.load.told

    def __exit__(self, *_: object) -> None:
        self.load.is_over = True
        self.thread.join()


PROBING = How(connections=1, rate=10, keeps_alive=False, answers_within=10)


class Found(NamedTuple):
    asked: dict[str, list[Told]]  # by what was asked for, and how
    let_go: float


def attacked(place: World, connections: int, seconds: float) -> Found:
    health = free_port()
    service = place.started("--workers", str(WORKERS), "--health-port", str(health))
    place.filled(service)
    port, asked, let_go = port_of(service), {}, 0.0
    for _ in range(2 * WORKERS):  # to import and compile first what is needed
        for path in ("/static/admin/css/base.css", "/readyz"):
            requests.get(f"{service.origin}{path}", timeout=60, headers={"Connection": "close"})
        Load([port], Questions(place.key), How(connections=8, keeps_alive=False)).for_seconds(0.5)
    for name, addresses in (("nobody", 0), ("one address", 1), ("many addresses", connections)):
        with Siege(port, connections if addresses else 0, addresses) as siege:
            wait_for_strangers(service, min(connections, 100) if addresses else 0)
            with ExitStack() as stack:
                for path, at in (("/healthcheck", port), ("/readyz", port), ("/readyz", health)):
                    what = f"{path} of --health-port" if at == health else path
                    asked[f"{what}, {name}"] = stack.enter_context(Probes(at, path))
                for what, keeps_alive in (("questions", True), ("questions on new connections", False)):
                    how = How(connections=8, rate=40, keeps_alive=keeps_alive, answers_within=10)
                    asked[f"{what}, {name}"] = Load([port], Questions(place.key), how).for_seconds(seconds / 6)
            let_go = max(let_go, siege.let_go(service))
    service.stop()
    return Found(asked, let_go)


def marks(found: Found) -> list[Mark]:
    made = []
    for name, told in found.asked.items():
        made.append(none_of(f"{name}: not answered", len(told) - statuses(told)[200], len(told)))
        p99 = quantile(told, 0.99)
        is_quiet = name.endswith("nobody")
        made.append(
            Mark(f"{name}: p99", "any", f"{p99:.3f} s", True)
            if is_quiet
            else at_most(f"{name}: p99", WITHIN, p99, " s")
        )
    return [*made, at_most("idle connections are let go", LET_GO_WITHIN + 2, found.let_go, " s")]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=40)
    options = parser.parse_args()
    failed = 0
    for kind in kinds_of(options):
        with world(kind) as place:
            failed |= printed(marks(attacked(place, options.connections, options.seconds)), f"\n{kind}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
