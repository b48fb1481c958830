"""The socket on which a worker accepts connections, and how it stops accepting them without losing one.

Each worker has a listening socket of its own on the port that all workers share. Closing this socket would cut off
clients that have connected and are not accepted yet, perhaps with a request on its way. So the worker first has the
system let in no further connections, and closes the socket once those that were there are accepted. A client that
connects meanwhile is not let in, and so has sent no request that could be lost.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
import time
from math import ceil

from django.conf import settings
from granian._granian import SocketHolder

from authz_project.server import connection_limits
from authz_project.server.connection_limits import IDLE, ConnectionLimits, Limits
from authz_project.server.files import LEAST

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
