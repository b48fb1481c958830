"""The socket that workers share, the files that they may open, and the signals that stop them."""

from __future__ import annotations

import ctypes
import resource
import signal
import socket
import struct
import sys
import time
from math import ceil

from django.conf import settings
from granian._granian import SocketHolder

from authz_project.server import connection_limits
from authz_project.server.connection_limits import IDLE, ConnectionLimits, Limits

# ---- files --------------------------------------------------------------------------------------------------------
# How many files a process may have open, connections among them, and what that leaves for callers.

MOST = 65_536  # nobody here needs more; some systems know no limit
CONNECTIONS = 1024  # of callers that a worker has at most; further ones wait to be accepted
LEAST = 16  # connections of callers, without which there is no point in starting
_OWN = 96  # open in a worker before anybody asks: programs, the listening socket, logs, and a few to spare
_OF_A_THREAD = 4  # with SQLite: the database, its WAL, the WAL's index, and a temporary file of a statement


class TooFewFiles(Exception):
    """A worker may not open enough files to take even `LEAST` connections; `message` says what to do."""

    def __init__(self, limit: int, needed: int):
        self.message = (
            f"too few file descriptors: {needed:,} needed, the limit is {limit:,}; raise it (`ulimit -n`, or "
            "LimitNOFILE= in systemd), or use fewer --threads per worker"
        )
        super().__init__(self.message)


def allow_as_many_as_possible() -> None:
    """Raise the limit of open files to the hard limit, `MOST` at most. Child processes inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_of_worker(threads: int) -> int:
    """Return how many connections a worker may take without running out of files; raise `TooFewFiles` below `LEAST`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS
    answering = max(1, threads - 1)
    # For each answering thread: itself, four more for what takes long (`MORE` in `intake`), and one that makes changes.
    own = _OWN + 6 * answering * _OF_A_THREAD
    if limit < own + LEAST:
        raise TooFewFiles(limit, own + LEAST)
    return min(CONNECTIONS, limit - own)


# ---- Receives signals to stop, in a thread that waits for nothing else --------------------------------------------
# Python runs signal handlers in its main thread, the next time that thread runs. But the system may give the signal
# to another thread, such as one that is just being started; the main thread then sleeps on, on a busy machine for
# ever. So the numbers of signals are read from a wakeup socket (`signal.set_wakeup_fd`). Python writes to it at once,
# in whichever thread the signal arrives.

TO_STOP = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Receives the signals to stop, from its creation on. Made once in a process, in the main thread.

    SIGHUP is ignored: nothing has to be reopened or read again, since log files are opened for each write.
    """

    def __init__(self) -> None:
        self._heard, self._written = socket.socketpair()
        self._written.setblocking(False)  # a signal does not block where nobody reads any more
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        for number in TO_STOP:
            signal.signal(number, self.nothing)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def nothing(self, *_: object) -> None:
        """Do nothing, as the handler of the signals. (A bound method, it also keeps this object and its sockets.)"""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a signal comes."""
        return self._heard.fileno()

    def next(self, seconds: float | None = None) -> int | None:
        """Wait for the next signal to stop, and return its number; None if none came in time."""
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
# The socket on which a worker accepts connections, and how it stops accepting them without losing one.
#
# Each worker has a listening socket of its own on the port that all workers share. Closing this socket would cut off
# clients that have connected and are not accepted yet, perhaps with a request on its way. So the worker first has the
# system let in no further connections, and closes the socket once those that were there are accepted. A client that
# connects meanwhile is not let in, and so has sent no request that could be lost.

BACKLOG = 4096  # connections that wait to be accepted by each worker, if the system allows as many
TAKEN_WITHIN = 0.05  # seconds for accepting the clients that have connected: it usually happens at once
USER_TIMEOUT = int(IDLE * 1000)  # milliseconds for a client to take what was sent; the kernel ends it then
_ATTACH_FILTER = 26  # Linux's SO_ATTACH_FILTER
_TAKE_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)  # a BPF program of one instruction: let in 0 bytes of each packet


class Listening:
    """A worker's listening socket, made in the worker; `holder` is the form in which granian takes it."""

    def __init__(self, address: str, port: int, backlog: int):
        own = opened(address, port)
        self._mine = own.dup()  # for `end`: granian owns the other one, and closes it
        self.holder = SocketHolder(own.detach(), False, backlog)

    def limit_connections(self, places: int) -> None:
        """Start to end connections that keep others out of the places that this worker has."""
        if connection_limits.is_possible():
            share = settings.CONNECTIONS_PER_ADDRESS
            per_address = max(LEAST, ceil(places * share)) if share else 0
            ConnectionLimits(self._mine, Limits(places, per_address)).start()

    def end(self) -> None:
        """Let in no further connection, and give granian time to accept those that are there."""
        program = ctypes.create_string_buffer(_TAKE_NOTHING)
        pointer = struct.pack("HP", 1, ctypes.addressof(program))
        self._mine.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, pointer)
        self._mine.close()
        time.sleep(TAKEN_WITHIN)


def opened(address: str, port: int) -> socket.socket:
    """Return a socket that is bound to the port; granian has it listen."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    own = socket.socket(family, socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted connections inherit it, and the next one
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT)
    own.bind((address, port))
    return own


def is_possible() -> bool:
    """Say whether each worker can have a socket of its own; elsewhere all share the parent's, and granian closes it."""
    return sys.platform == "linux"
