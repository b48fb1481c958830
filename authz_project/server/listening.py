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

from granian._granian import SocketHolder

BACKLOG = 1024  # clients that have connected and are not accepted yet
TAKEN_WITHIN = 0.05  # seconds for accepting the clients that have connected: it usually happens at once
_ATTACH_FILTER = 26  # Linux's SO_ATTACH_FILTER
_TAKE_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)  # a BPF program of one instruction: let in 0 bytes of each packet


class Listening:
    """A worker's listening socket, made in the worker; `holder` is the form in which granian takes it."""

    def __init__(self, address: str, port: int, backlog: int):
        own = opened(address, port)
        self._mine = own.dup()  # for `end`: granian owns the other one, and closes it
        self.holder = SocketHolder(own.detach(), False, backlog)

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
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    own.bind((address, port))
    return own


def is_possible() -> bool:
    """Say whether each worker can have a socket of its own; elsewhere all share the parent's, and granian closes it."""
    return sys.platform == "linux"
