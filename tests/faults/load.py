"""Clients that go on whatever happens to the server, and write down what became of each request."""

from __future__ import annotations

import heapq
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.benchmarks.clients import AT_ONCE, END_OF_HEAD

REFUSED, CUT_OFF, UNANSWERED = -1, 0, -2  # in place of a status: no connection, closed without an answer, none in time
PAUSE = 0.02  # seconds until a client tries to connect again


class Told(NamedTuple):
    """What became of a request. `at` is when it was sent, by `perf_counter`, on whichever attempt was answered."""

    number: int
    at: float
    seconds: float
    status: int
    attempts: int = 1
    body: bytes = b""


@dataclass
class How:
    """How clients behave. Paced ones send so many requests a second together, if answers come that fast."""

    connections: int = 8
    rate: float = 0.0  # 0: as fast as they are answered
    tries: int = 1  # on how many connections a request is tried before it counts as failed; on the ports by turns
    keeps_alive: bool = True  # or has a new connection for each request
    answers_within: float = 60.0  # seconds
    keeps_bodies: bool = False


Made = Callable[[int], bytes]  # the request of a number


def request_of(key: str, method: str, path: str, body: bytes = b"", close: bool = False) -> bytes:
    head = f"{method} /api{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + (b"Connection: close\r\n\r\n" if close else b"\r\n") + body


class Load:
    """Sends until told to stop. `run` in a thread of its own, or `for_seconds`."""

    def __init__(self, ports: Sequence[int], made: Made, how: How):
        self.ports, self.made, self.how = ports, made, how
        self.told: list[Told] = []
        self.is_over = False
        self._number = 0
        self._epoll = select.epoll()
        self._open: dict[int, _Client] = {}  # by the number of its socket
        self._due: list[tuple[float, int, _Client]] = []
        self._active = 0

    def for_seconds(self, seconds: float) -> list[Told]:
        self.run(time.perf_counter() + seconds)
        return self.told

    def run(self, until: float = float("inf")) -> None:
        """Until then or until it is over, and on until each request that was sent has its end."""
        started, every = time.perf_counter(), self._interval()
        for index in range(self.how.connections):
            client = _Client(index)
            client.next_at = started + every * index / self.how.connections
            self._wake(client, client.next_at)
        while not self._is_done(until):
            self._send_what_is_due(until)
            self._take(self._pause())
            self._give_up_late_ones()
        for client in tuple(self._open.values()):
            self._hang_up(client)
        self._epoll.close()

    def _is_done(self, until: float) -> bool:
        return (self.is_over or time.perf_counter() >= until) and not self._active

    def _interval(self) -> float:
        return self.how.connections / self.how.rate if self.how.rate else 0.0

    def _wake(self, client: _Client, at: float) -> None:
        heapq.heappush(self._due, (at, client.index, client))

    def _pause(self) -> float:
        return min(0.05, max(0.0, self._due[0][0] - time.perf_counter())) if self._due else 0.05

    # ---- sending -------------------------------------------------------------------------------------------------

    def _send_what_is_due(self, until: float) -> None:
        while self._due and self._due[0][0] <= time.perf_counter():
            _, _, client = heapq.heappop(self._due)
            if client.number is None:
                if self.is_over or time.perf_counter() >= until:
                    continue
                client.begin(self._number)
                self._number += 1
                self._active += 1
            self._send(client)

    def _send(self, client: _Client) -> None:
        assert client.number is not None, "a client that sends has a request"
        if client.socket is None:
            self._connect(client)
            return
        client.sent_at, client.received, client.length = time.perf_counter(), b"", 0
        try:
            client.socket.sendall(self.made(client.number))
        except OSError:
            self._fail(client, CUT_OFF)

    def _connect(self, client: _Client) -> None:
        """Begin to; it is sent once the connection is there."""
        client.attempts += 1
        port = self.ports[(client.index + client.turn) % len(self.ports)]
        client.socket, client.is_connecting = socket.socket(), True
        client.sent_at, client.received = time.perf_counter(), b""
        client.socket.setblocking(False)
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.socket.connect_ex(("127.0.0.1", port))
        self._open[client.socket.fileno()] = client
        self._epoll.register(client.socket, select.EPOLLOUT)

    def _connected(self, client: _Client) -> None:
        if client.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._fail(client, REFUSED)
            return
        client.is_connecting = False
        client.socket.setblocking(True)
        self._epoll.modify(client.socket, select.EPOLLIN)
        self._send(client)

    def _hang_up(self, client: _Client) -> None:
        if client.socket is not None:
            self._epoll.unregister(client.socket)
            del self._open[client.socket.fileno()]
            client.socket.close()
            client.socket, client.is_connecting = None, False

    # ---- what comes ----------------------------------------------------------------------------------------------

    def _take(self, pause: float) -> None:
        for number, _ in self._epoll.poll(pause):
            client = self._open.get(number)
            if client is not None:
                (self._connected if client.is_connecting else self._receive)(client)

    def _receive(self, client: _Client) -> None:
        try:
            chunk = client.socket.recv(AT_ONCE)
        except OSError:
            chunk = b""
        if not chunk:
            if client.number is None:  # closed between two requests, as it may be
                self._hang_up(client)
            else:
                self._fail(client, CUT_OFF)
            return
        client.received += chunk
        if client.is_whole():
            self._answered(client)

    def _answered(self, client: _Client) -> None:
        head, _, body = client.received.partition(END_OF_HEAD)
        if b"connection: close" in head.lower() or not self.how.keeps_alive:
            self._hang_up(client)
        self._end(client, int(head[9:12]), body)

    def _fail(self, client: _Client, how: int) -> None:
        """One attempt. An answer that had begun to come is not asked for again."""
        had_begun = bool(client.received)
        self._hang_up(client)
        client.turn += 1
        if client.attempts < self.how.tries and not had_begun:
            self._wake(client, time.perf_counter() + (PAUSE if how == REFUSED else 0.0))
        else:
            self._end(client, how, b"")

    def _end(self, client: _Client, status: int, body: bytes) -> None:
        now = time.perf_counter()
        kept = body if self.how.keeps_bodies else b""
        self.told.append(Told(client.number, client.sent_at, now - client.sent_at, status, client.attempts, kept))
        client.number = None
        self._active -= 1
        client.next_at = max(client.next_at + self._interval(), now + (PAUSE if status <= 0 else 0.0))
        self._wake(client, client.next_at)

    def _give_up_late_ones(self) -> None:
        now = time.perf_counter()
        for client in tuple(self._open.values()):
            if client.number is not None and now - client.sent_at > self.how.answers_within:
                self._hang_up(client)
                self._end(client, UNANSWERED, b"")


@dataclass
class _Client:
    """One connection, and the request that is on it."""

    index: int
    socket: socket.socket | None = None
    number: int | None = None
    attempts: int = 0
    is_connecting: bool = False
    turn: int = 0  # how often it went to the next port
    sent_at: float = 0.0
    next_at: float = 0.0
    received: bytes = field(default=b"", repr=False)
    length: int = 0

    def begin(self, number: int) -> None:
        self.number, self.attempts, self.sent_at = number, int(self.socket is not None), time.perf_counter()

    def is_whole(self) -> bool:
        if not self.length:
            end = self.received.find(END_OF_HEAD)
            if end < 0:
                return False
            length = self.received[:end].lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self.length = end + len(END_OF_HEAD) + int(length)
        return len(self.received) >= self.length


def statuses(told: Iterable[Told]) -> Counter[int]:
    return Counter(each.status for each in told)


def quantile(told: Iterable[Told], share: float, statuses: Sequence[int] = (200,)) -> float:
    """The seconds that so large a share of those with such a status took at most; nan of none."""
    times = sorted(each.seconds for each in told if each.status in statuses)
    return times[min(int(share * len(times)), len(times) - 1)] if times else float("nan")
