"""The socket that a worker takes connections from, and how it stops to take them without losing one.

Each worker has a socket of its own on the port that all share. Whoever has connected and is not taken yet when it is
closed would be cut off, perhaps with a request on its way. So the worker first has the system take in nobody else, and
closes when those who were there are taken. Who comes meanwhile is refused, having sent nothing.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
import time

from granian._granian import SocketHolder

TAKEN_WITHIN = 0.05  # seconds, in which those are taken who have connected: usually at once
_ATTACH_FILTER = 26  # Linux's SO_ATTACH_FILTER
_TAKE_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)  # a program of one instruction: of each packet, 0 bytes are let in


class Listening:
    """Made in the worker; `holder` is what granian takes it by."""

    def __init__(self, address: str, port: int, backlog: int):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        own = socket.socket(family, socket.SOCK_STREAM)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.bind((address, port))
        self._mine = own.dup()  # to say at the end that nobody else is to come; the other is granian's, who closes it
        self.holder = SocketHolder(own.detach(), False, backlog)

    def end(self) -> None:
        """Take in nobody else, and wait until all are taken who were there."""
        program = ctypes.create_string_buffer(_TAKE_NOTHING)
        pointer = struct.pack("HP", 1, ctypes.addressof(program))
        self._mine.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, pointer)
        self._mine.close()
        time.sleep(TAKEN_WITHIN)


def is_possible() -> bool:
    """Whether the system can do so; elsewhere granian's own way does."""
    return sys.platform == "linux"
