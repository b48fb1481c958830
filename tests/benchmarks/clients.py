"""Clients with persistent connections, as lean as Python has them: one loop over bytes that were made before."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson

END_OF_HEAD = b"\r\n\r\n"
AT_ONCE = 1 << 18  # bytes


@dataclass
class Request:
    """What is sent, and what is right to answer it: `is_right` is asked once for each different answer."""

    sent: bytes
    is_right: Callable[[object], bool]
    seen: set[bytes] = field(default_factory=set)  # answers that were right

    def check(self, status: bytes, body: bytes) -> None:
        if body not in self.seen:
            if status != b"200" or not self.is_right(orjson.loads(body)):
                raise WrongAnswer(f"{self.sent[:2000]!r} is answered with {status!r} {body[:1000]!r}")
            self.seen.add(body)


class WrongAnswer(Exception):
    """The service said what is not so: its speed is of no interest."""


def request(key: str, path: str, body: object, is_right: Callable[[object], bool]) -> Request:
    text = orjson.dumps(body)
    head = f"POST /api{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    return Request(head.encode() + text, is_right)


class Connection:
    """One client: sends when its answer is there."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request: Request | None = None
        self.started = 0.0
        self.received = b""
        self.length = 0  # of the whole answer, once it is known

    def send(self, request: Request) -> None:
        self.request, self.received, self.length = request, b"", 0
        self.started = time.perf_counter()
        self.socket.sendall(request.sent)

    def receive(self) -> float | None:
        """The seconds since the request, if the whole answer is there now."""
        chunk = self.socket.recv(AT_ONCE)
        if not chunk:
            raise ConnectionError("the server hung up")
        self.received += chunk
        if not self.length:
            self._measure()
        if not self.length or len(self.received) < self.length:
            return None
        taken = time.perf_counter() - self.started
        head, _, body = self.received.partition(END_OF_HEAD)
        self.request.check(head[9:12], body)
        return taken

    def _measure(self) -> None:
        end = self.received.find(END_OF_HEAD)
        if end >= 0:
            length = self.received[:end].lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self.length = end + len(END_OF_HEAD) + int(length)


class Clients:
    """So many connections, which ask as fast as they are answered."""

    def __init__(self, port: int, count: int):
        self.connections = {}
        self.poll = select.epoll()
        for _ in range(count):
            connection = Connection(port)
            self.connections[connection.socket.fileno()] = connection
            self.poll.register(connection.socket, select.EPOLLIN)

    def close(self) -> None:
        self.poll.close()
        for connection in self.connections.values():
            connection.socket.close()

    def ask(self, requests: Sequence[Request], seconds: float) -> Asked:
        """One after the other on each connection, for so long; and at least each of few once."""
        times: list[float] = []
        started, busy = time.perf_counter(), time.thread_time()
        until, sent, waiting = started + seconds, 0, len(self.connections)
        for connection in self.connections.values():
            connection.send(requests[sent % len(requests)])
            sent += 1
        while waiting:
            for number, _ in self.poll.poll():
                connection = self.connections[number]
                taken = connection.receive()
                if taken is None:
                    continue
                times.append(taken)
                if time.perf_counter() < until:
                    connection.send(requests[sent % len(requests)])
                    sent += 1
                else:
                    waiting -= 1
        return Asked(times, time.perf_counter() - started, time.thread_time() - busy)


@dataclass(frozen=True)
class Asked:
    """How long each answer took, how long all of them together, and how long the clients themselves were busy."""

    times: list[float]
    seconds: float
    busy: float
