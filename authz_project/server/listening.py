"""The socket that workers share, limits on its connections, and signal handling."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from granian.http import HTTP1Settings

from policy.core.threads import start_thread
from policy.errors import AuthzError

CLIENT = "authz.client"  # key of an environ: the client's address and port

# ---- connection limits --------------------------------------------------------------------------------------------
# Closes client connections that hold a place without using it: idle, never reading, or too many from one address.
#
# Granian accepts connections in Rust, up to a fixed number per worker, and leaves further ones in the backlog of the
# listening socket. A client that opens that many and sends nothing would lock everybody else out. So a thread of each
# worker checks the sockets of its own process. The kernel knows what each has sent and received (`TCP_INFO`), so this
# costs requests nothing but noting that they are in progress (`in_use`).
#
# A connection's age is the time since the service last sent something on it, or accepted it: sending data, for example
# byte by byte, does not make a connection younger. Three rules apply:
#
# * A connection older than `IDLE` seconds is closed. (Granian closes most of them itself, by the same limit; the
#   kernel closes those of clients that do not read: see `USER_TIMEOUT`.)
# * An address has at most its share of the places, `CONNECTIONS_PER_ADDRESS`. Its oldest connections are closed.
# * When more than `CROWDED` of the places are taken, some are freed for the connections in the backlog: first those
#   that were never answered (those that have sent nothing before all others), then the others, oldest first. So there
#   is always a place for a health check.
#
# Connections in use are never closed; there are at most as many as threads and bodies of authenticated callers.

log = logging.getLogger("authz.server")

IDLE = 25.0  # seconds
CROWDED = 7 / 8  # of the places: above this, places are freed
ENOUGH = 3 / 4  # of the places: this many remain taken
GRACE = 0.2  # seconds for a new connection to be answered, before its place may be freed for another one
FRESH = 0.5  # seconds after an answer, in which the next request may be on its way
SETTLED = 1.0  # seconds for a new connection to be answered, before the limit of its address may close it
LOOK_EVERY = 0.25  # seconds
SOON = 0.05  # seconds, after a check that closed connections: more may follow from the backlog
SURVEY_EVERY = 1.0  # seconds between full checks while few places are taken: only idle ones can be found then

_DESCRIPTORS = "/proc/self/fd"
_INFO = struct.Struct("<24xI16xI72xQQ40xQ")  # the members of `TcpInfo`, in order
_LEAST_INFO = 192  # bytes, of which `_INFO` covers the first ones; available since Linux 4.10
_MAPPED = b"\0" * 10 + b"\xff\xff"  # prefix of an IPv4 address mapped to IPv6
_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: discard unsent data and reset the connection

# Clients with a request in progress, as granian writes them: `127.0.0.1:50000`. Updated by `intake` and `exchange`.
in_use: set[str] = set()


def descriptors() -> list[str]:
    return os.listdir(_DESCRIPTORS)  # noqa: PTH208  called often, and takes a fifth of the time


# ---- kernel information about connections ------------------------------------------------------------------------

# `PyDLL` keeps the GIL. Otherwise, each of the thousands of calls of a check might have to wait to get it back.
_libc = ctypes.PyDLL(None)
_lock = threading.Lock()  # of the buffer
_buffer = ctypes.create_string_buffer(256)
_size = ctypes.c_uint32()


class TcpInfo(NamedTuple):
    """Members of `struct tcp_info`, in seconds and bytes."""

    last_data_sent: float  # since data was last sent, or since the connection was made
    unacked: int  # of a listening socket: connections in the backlog
    bytes_acked: int
    bytes_received: int
    rwnd_limited: float  # total time for which the client's full buffer has blocked sending


def can_be_limited() -> bool:
    """Return whether the system provides what the rules need (Linux 4.10+). If not, granian's timeout remains."""
    if sys.platform != "linux" or not Path(_DESCRIPTORS).is_dir():
        return False
    with socket.socket() as probe:
        return len(probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LEAST_INFO)) == _LEAST_INFO


def tcp_info(descriptor: int) -> TcpInfo | None:
    """Return what the kernel knows about the socket; None if the descriptor is not a TCP socket."""
    _size.value = _LEAST_INFO
    if _libc.getsockopt(descriptor, socket.IPPROTO_TCP, socket.TCP_INFO, _buffer, ctypes.byref(_size)):
        return None
    unacked, last_data_sent, acked, received, rwnd_limited = _INFO.unpack_from(_buffer)
    return TcpInfo(last_data_sent / 1000, unacked, acked, received, rwnd_limited / 1_000_000)


def address_of(call: Callable[..., int], descriptor: int) -> Address | None:
    """Return the result of `getpeername` or `getsockname`; None if not connected, or not a TCP socket."""
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
        """Parse an address as granian writes it: `127.0.0.1:50000`, `[::1]:50000`."""
        host, _, port = text.rpartition(":")
        host, family = (host.strip("[]").partition("%")[0], socket.AF_INET6) if ":" in host else (host, socket.AF_INET)
        return cls(socket.inet_pton(family, host), int(port))

    @property
    def network(self) -> bytes:
        """Return what counts as one address: for IPv6, the /64 network, in which a client can choose its address."""
        if self.host.startswith(_MAPPED) or len(self.host) == 4:
            return self.host[-4:]
        return self.host[:8]


class Connection(NamedTuple):
    """A client's connection, as found by a check."""

    descriptor: int
    peer: Address
    age: float
    was_answered: bool
    has_sent: bool = False

    @property
    def order(self) -> tuple[bool, bool, float]:
        return self.was_answered, self.has_sent, -self.age

    def end(self) -> None:
        """Shut the connection down and discard unsent data. Granian then closes it, which frees the place.

        It may have been closed since the check, and its descriptor reused for another file or connection, which must
        be left alone. Duplicating it is no solution: closing a duplicate of SQLite's file would drop SQLite's locks.
        """
        with _lock:
            is_same = address_of(_libc.getpeername, self.descriptor) == self.peer
        if is_same:
            _libc.setsockopt(self.descriptor, socket.SOL_SOCKET, socket.SO_LINGER, _ABORT, len(_ABORT))
            _libc.shutdown(self.descriptor, socket.SHUT_RDWR)


# ---- which connections are closed ---------------------------------------------------------------------------------


class Limits(NamedTuple):
    places: int
    per_address: int  # 0 means no limit
    idle: float = IDLE
    grace: float = GRACE


class ConnectionLimits:
    """Applies the rules to the connections that a process has accepted on the port of its listening socket."""

    def __init__(self, listening: socket.socket, limits: Limits):
        self._listening, self._limits = listening, limits
        self._port = listening.getsockname()[1]
        self._own = len(descriptors())  # descriptors that are open at the start, and so belong to no client
        self._surveyed_at = 0.0

    def start(self) -> None:
        start_thread("connection limits", self._watch)

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
        """Check the connections, and return how many were closed."""
        now = time.monotonic()
        most = self._limits.per_address or self._limits.places
        few = len(descriptors()) - self._own <= min(most, CROWDED * self._limits.places)
        if few and now - self._surveyed_at < SURVEY_EVERY:
            return 0
        self._surveyed_at = now
        ended = to_end(self._connections(), self._backlog(), self._limits)
        for connection in ended:
            connection.end()
        return len(ended)

    def expects_another(self) -> bool:
        """Return whether a client that was just answered may be about to send its next request."""
        return any(each.was_answered and each.age < FRESH for each in self._connections())

    def expects_first(self) -> bool:
        """Return whether a client has just connected, and its first request may be on its way."""
        return self._backlog() > 0 or any(not each.has_sent and each.age < FRESH for each in self._connections())

    def _backlog(self) -> int:
        with _lock:
            info = tcp_info(self._listening.fileno())
        return info.unacked if info else 0

    def _connections(self) -> list[Connection]:
        found = []
        for number in map(int, descriptors()):
            with _lock:
                info = tcp_info(number)
                own = address_of(_libc.getsockname, number) if info else None
                peer = address_of(_libc.getpeername, number) if own and own.port == self._port else None
            if info and peer:
                age = max(info.last_data_sent, info.rwnd_limited)
                found.append(Connection(number, peer, age, info.bytes_acked > 0, info.bytes_received > 0))
        return found


def to_end(found: list[Connection], backlog: int, limits: Limits) -> list[Connection]:
    """Return the connections to close, while `backlog` others wait to be accepted."""
    busy = {Address.from_text(text) for text in tuple(in_use)}
    candidates = sorted((each for each in found if each.peer not in busy), key=lambda each: each.order)
    ended = {id(each): each for each in candidates if each.age > limits.idle}
    if limits.per_address:
        settled = [each for each in candidates if each.was_answered or each.age > SETTLED]
        ended |= {id(each): each for each in _beyond_share(found, settled, limits.per_address)}
    taken = len(found) - len(ended)
    if taken + (backlog > 0) > CROWDED * limits.places:
        enough = int(ENOUGH * limits.places)
        left = [
            each
            for each in candidates
            if id(each) not in ended and each.age > (FRESH if each.was_answered else limits.grace)
        ]
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


# ---- open files ---------------------------------------------------------------------------------------------------
# How many file descriptors a process may have open, and how many connections that leaves for callers.

MOST = 65_536  # more is never needed; some systems have no limit
CONNECTIONS = 1024  # of callers per worker; further ones stay in the backlog
LEAST = 16  # connections of callers; with fewer, there is no point in starting
_OWN = 96  # open in a worker before the first request: programs, the listening socket, logs, and some spare ones
_OF_A_THREAD = 4  # with SQLite: the database, its WAL, the WAL's index, and a temporary file


class TooFewFiles(AuthzError):
    """A worker cannot open enough files for even `LEAST` connections; `message` says what to do."""

    def __init__(self, limit: int, needed: int):
        super().__init__(
            f"too few file descriptors: {needed:,} needed, the limit is {limit:,}; raise it (`ulimit -n`, or "
            "LimitNOFILE= in systemd), or use fewer --threads per worker"
        )


def allow_as_many_as_possible() -> None:
    """Raise the limit of open files to the hard limit, but at most to `MOST`. Child processes inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_of_worker(threads: int) -> int:
    """Return how many connections a worker can take without running out of files. Raise `TooFewFiles` below `LEAST`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS
    answering = max(1, threads - 1)
    # For each answering thread: itself, four extra threads for slow requests (`intake.MORE`), and one for changes.
    own = _OWN + 6 * answering * _OF_A_THREAD
    if limit < own + LEAST:
        raise TooFewFiles(limit, own + LEAST)
    return min(CONNECTIONS, limit - own)


# ---- signals: a thread that waits for nothing else receives the signals to stop -----------------------------------
# Python runs signal handlers in its main thread, the next time that thread runs. But the system may deliver the signal
# to another thread, such as one that is just starting; on a busy machine, the main thread may then sleep forever. So
# signal numbers are read from a wakeup socket (`signal.set_wakeup_fd`), to which Python writes immediately in whichever
# thread receives the signal.

TO_STOP = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Receives the signals to stop from its creation on. Create it once per process, in the main thread.

    SIGHUP is ignored: there is nothing to reopen or reload, since log files are opened for each write.
    """

    def __init__(self) -> None:
        self._heard, self._written = socket.socketpair()
        self._written.setblocking(False)  # a signal must not block when nobody reads any more
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        for number in TO_STOP:
            signal.signal(number, self.nothing)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def nothing(self, *_: object) -> None:
        """Handle the signals by doing nothing. (As a bound method, it also keeps this object and its sockets alive.)"""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a signal arrives."""
        return self._heard.fileno()

    def next(self, seconds: float | None = None) -> int | None:
        """Wait for the next signal to stop, and return its number; None on timeout."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            self._heard.settimeout(None if until is None else max(0.0, until - time.monotonic()))
            try:
                number = self._heard.recv(1)[0]
            except (TimeoutError, BlockingIOError):
                return None
            if number in TO_STOP:
                return number


# ---- listening ----------------------------------------------------------------------------------------------------
# The socket on which a worker accepts connections, and how to stop accepting without losing one.
#
# Each worker has its own listening socket on the port that all workers share. Closing this socket would cut off clients
# that have connected but are not accepted yet, perhaps with a request in flight. So the worker first makes the kernel
# reject new connections (packets with SYN and without ACK), and closes the socket once those in the backlog are
# accepted and have sent their first request. A client that connects meanwhile gets no connection, so it cannot have
# sent a request that would be lost.

BACKLOG = 4096  # of each worker, if the system allows that many
TAKEN_WITHIN = 1.0  # seconds at most for granian to accept the clients that have connected, and for them to send
HTTP1 = HTTP1Settings(header_read_timeout=int(IDLE * 1000))
USER_TIMEOUT = int(IDLE * 1000)  # milliseconds for a client to read a response; then the kernel closes it
_ATTACH_FILTER = 26  # Linux's SO_ATTACH_FILTER
# A BPF program that drops a packet if SYN is set in its flags, in byte 13, and ACK is not.
_DROP_SYN = b"".join(
    struct.pack("HBBI", *each)
    for each in ((0x30, 0, 0, 13), (0x54, 0, 0, 0x12), (0x15, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
)


class Listening:
    """A worker's listening socket, or the one that all share. If granian opens its own, this one is only bound."""

    def __init__(self, own: socket.socket, is_shared: bool = False):
        self._own, self._is_shared = own, is_shared
        self._mine = own.dup()  # for `end`: granian owns and closes the other one
        self._limits: ConnectionLimits | None = None

    def detach(self) -> int:
        """Return the descriptor, for granian, which calls `listen`."""
        return self._own.detach()

    def limit_connections(self, places: int) -> None:
        """Start closing connections that keep others out of the worker's `places`."""
        if can_be_limited() and not self._is_shared:
            share = settings.CONNECTIONS_PER_ADDRESS
            per_address = max(LEAST, ceil(places * share)) if share else 0
            self._limits = ConnectionLimits(self._mine, Limits(places, per_address))
            self._limits.start()

    def expects_another(self) -> bool:
        """Return whether a client that was just answered may be about to send its next request; True if unknown."""
        return self._limits is None or self._limits.expects_another()

    def end(self) -> None:
        """Reject new connections, and wait for the first requests of those that there are."""
        if self._is_shared:
            return
        program = ctypes.create_string_buffer(_DROP_SYN)
        pointer = struct.pack("HP", len(_DROP_SYN) // 8, ctypes.addressof(program))
        self._mine.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, pointer)
        until = time.monotonic() + TAKEN_WITHIN
        time.sleep(SOON)
        while self._limits is not None and time.monotonic() < until and self._limits.expects_first():
            time.sleep(SOON)
        self._mine.close()


def opened(address: str, port: int) -> socket.socket:
    """Return a socket that is bound to the port; granian calls `listen`."""
    own = socket.socket(family_of(address), socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by accepted connections, as is the next one
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT)
    own.bind((address, port))
    return own


def family_of(address: str) -> socket.AddressFamily:
    """Return IPv6 for an IPv6 address, and IPv4 for all others, including names."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def is_possible() -> bool:
    """Return whether each worker can have its own socket. If not, all share the parent's, and granian closes it."""
    return sys.platform == "linux"
