"""Ends client connections that hold a place without using it: idle, never-reading, too many from one address.

Granian accepts connections in Rust, up to a fixed number for each worker, and leaves further ones in the queue of the
listening socket. Whoever opens that many and sends nothing would keep everybody else out. So a thread of each worker
looks at the sockets of its own process. The kernel knows what each has sent and received (`TCP_INFO`), so that requests
pay nothing for this: they only note that they are being answered (`in_use`).

A connection's age is the time since the service last sent something on it, or accepted it: what a client sends, byte by
byte, makes no connection younger. Three rules apply:

* A connection that is older than `IDLE` seconds is ended. (Granian ends most of them itself, by the same limit; the
  kernel ends those of clients that take nothing: `USER_TIMEOUT` in `listening`.)
* An address has at most its share of the places, `CONNECTIONS_PER_ADDRESS`. The oldest of its connections are ended.
* When more than `CROWDED` of the places are taken, some are freed, for all that wait in the queue: first of connections
  that were never answered, then of the others, the oldest first. So there is always a place for a health check.

Connections in use are never ended; there are at most as many as threads and bodies of known callers.
"""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger("authz.server")

IDLE = 25.0  # seconds
CROWDED = 7 / 8  # of the places: from then on, places are freed
ENOUGH = 3 / 4  # of the places: so many remain taken
GRACE = 0.2  # seconds for a new connection to be answered, before its place may be given to another one
SETTLED = 1.0  # seconds for a new connection to be answered, before it may be ended for others of its address
LOOK_EVERY = 0.25  # seconds
SOON = 0.05  # seconds, after a look that has ended connections: more may follow from the queue
SURVEY_EVERY = 1.0  # seconds, while few places are taken: nothing but idle connections can be found then

_DESCRIPTORS = "/proc/self/fd"
_INFO = struct.Struct("<24xI16xI72xQ48xQ")  # the members of `TcpInfo`, in their order
_LEAST_INFO = 192  # bytes, of which `_INFO` has the first ones: what Linux has had since 4.10
_MAPPED = b"\0" * 10 + b"\xff\xff"  # IPv4 as a part of IPv6
_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: drop what is not sent, and reset the connection

# Clients whose requests are being answered, as granian writes them: `127.0.0.1:50000`. Intake and exchange keep it.
in_use: set[str] = set()


def descriptors() -> list[str]:
    """Return the numbers of the files that this process has open."""
    return os.listdir(_DESCRIPTORS)  # noqa: PTH208  called often, and takes a fifth of the time


# ---- what the kernel knows of a connection -----------------------------------------------------------------------

# Calls by `PyDLL` keep the interpreter. Otherwise each of the thousands of calls of a look might wait for its turn.
_libc = ctypes.PyDLL(None)
_buffer = ctypes.create_string_buffer(256)
_size = ctypes.c_uint32()


class TcpInfo(NamedTuple):
    """Members of `struct tcp_info`, in seconds and bytes."""

    last_data_sent: float  # since data was last sent, or since the connection was made
    unacked: int  # of a listening socket: connections that wait to be accepted
    bytes_acked: int
    rwnd_limited: float  # for which the client's full buffer has kept data from being sent, in total


def is_possible() -> bool:
    """Say whether the system tells what the rules need: Linux 4.10 or newer. Elsewhere granian's timeout remains."""
    if sys.platform != "linux" or not Path(_DESCRIPTORS).is_dir():
        return False
    with socket.socket() as probe:
        return len(probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LEAST_INFO)) == _LEAST_INFO


def tcp_info(descriptor: int) -> TcpInfo | None:
    """Return what is known; None if the descriptor is no TCP socket."""
    _size.value = _LEAST_INFO
    if _libc.getsockopt(descriptor, socket.IPPROTO_TCP, socket.TCP_INFO, _buffer, ctypes.byref(_size)):
        return None
    unacked, last_data_sent, bytes_acked, rwnd_limited = _INFO.unpack_from(_buffer)
    return TcpInfo(last_data_sent / 1000, unacked, bytes_acked, rwnd_limited / 1_000_000)


def address_of(call: Callable[..., int], descriptor: int) -> Address | None:
    """Return what `getpeername` or `getsockname` says; None if the descriptor is not connected, or no TCP socket."""
    _size.value = len(_buffer)
    if call(descriptor, _buffer, ctypes.byref(_size)):
        return None
    (family,) = struct.unpack_from("H", _buffer)
    (port,) = struct.unpack_from("!H", _buffer, 2)
    match family:
        case socket.AF_INET:
            return Address(_buffer.raw[4:8], port)
        case socket.AF_INET6:
            return Address(_buffer.raw[8:24], port)
    return None


class Address(NamedTuple):
    host: bytes
    port: int

    @classmethod
    def from_text(cls, text: str) -> Address:
        """Return the address that granian writes like this: `127.0.0.1:50000`, `[::1]:50000`."""
        host, _, port = text.rpartition(":")
        host, family = (host.strip("[]").partition("%")[0], socket.AF_INET6) if ":" in host else (host, socket.AF_INET)
        return cls(socket.inet_pton(family, host), int(port))

    @property
    def network(self) -> bytes:
        """Return what counts as one address: of IPv6, the network of 64 bits in which a client chooses its own."""
        if self.host.startswith(_MAPPED) or len(self.host) == 4:
            return self.host[-4:]
        return self.host[:8]


class Connection(NamedTuple):
    """A connection of a client, as one look has found it."""

    descriptor: int
    peer: Address
    age: float
    was_answered: bool

    @property
    def order(self) -> tuple[bool, float]:
        return self.was_answered, -self.age

    def end(self) -> None:
        """Shut it down, and drop what is not sent. Granian then closes it, and the place is free.

        It may have been closed since the look, and its number given to another file or connection: that one is left
        alone. No duplicate is made to be sure of it, as to close one of SQLite's file would drop its locks.
        """
        if address_of(_libc.getpeername, self.descriptor) == self.peer:
            _libc.setsockopt(self.descriptor, socket.SOL_SOCKET, socket.SO_LINGER, _ABORT, len(_ABORT))
            _libc.shutdown(self.descriptor, socket.SHUT_RDWR)


# ---- which connections are ended ---------------------------------------------------------------------------------


class Limits(NamedTuple):
    places: int
    per_address: int  # 0 is no limit
    idle: float = IDLE
    grace: float = GRACE


class ConnectionLimits:
    """Applies the rules to the connections that a process has accepted on the port of its listening socket."""

    def __init__(self, listening: socket.socket, limits: Limits):
        self._listening, self._limits = listening, limits
        self._port = listening.getsockname()[1]
        self._own = len(descriptors())  # files that are no client's, when the process begins
        self._surveyed_at = 0.0

    def start(self) -> None:
        threading.Thread(target=self._watch, name="connection limits", daemon=True).start()

    def _watch(self) -> None:
        ended = 0
        while True:
            time.sleep(SOON if ended else LOOK_EVERY)
            try:
                ended = self.look()
            except Exception:
                ended = 0
                log.exception("cannot check client connections")

    def look(self) -> int:
        """Return how many connections were ended."""
        now = time.monotonic()
        most = self._limits.per_address or self._limits.places
        few = len(descriptors()) - self._own <= min(most, CROWDED * self._limits.places)
        if few and now - self._surveyed_at < SURVEY_EVERY:
            return 0
        self._surveyed_at = now
        backlog = tcp_info(self._listening.fileno())
        ended = to_end(list(self._connections()), backlog.unacked if backlog else 0, self._limits)
        for connection in ended:
            connection.end()
        return len(ended)

    def _connections(self) -> Iterator[Connection]:
        for number in map(int, descriptors()):
            info = tcp_info(number)
            own = address_of(_libc.getsockname, number) if info else None
            if info and own and own.port == self._port and (peer := address_of(_libc.getpeername, number)):
                yield Connection(number, peer, max(info.last_data_sent, info.rwnd_limited), info.bytes_acked > 0)


def to_end(found: list[Connection], backlog: int, limits: Limits) -> list[Connection]:
    """Return those of the connections that are to be ended, while so many others wait in the queue."""
    busy = {Address.from_text(text) for text in tuple(in_use)}
    candidates = sorted((each for each in found if each.peer not in busy), key=lambda each: each.order)
    ended = {id(each): each for each in candidates if each.age > limits.idle}
    if limits.per_address:
        settled = [each for each in candidates if each.was_answered or each.age > SETTLED]
        ended |= {id(each): each for each in _beyond_share(found, settled, limits.per_address)}
    taken = len(found) - len(ended)
    if taken + (backlog > 0) > CROWDED * limits.places:
        enough = int(ENOUGH * limits.places)
        left = [each for each in candidates if id(each) not in ended and (each.was_answered or each.age > limits.grace)]
        silent = [each for each in left if not each.was_answered][: max(0, taken + backlog - enough)]
        answered = [each for each in left if each.was_answered][: max(0, taken - len(silent) - enough)]
        ended |= {id(each): each for each in (*silent, *answered)}
    return list(ended.values())


def _beyond_share(found: list[Connection], candidates: list[Connection], most: int) -> Iterator[Connection]:
    surplus: dict[bytes, int] = defaultdict(lambda: -most)
    for each in found:
        surplus[each.peer.network] += 1
    for each in candidates:
        if surplus[each.peer.network] > 0:
            surplus[each.peer.network] -= 1
            yield each
