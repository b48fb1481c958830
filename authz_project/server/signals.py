"""Signals to stop, heard by a thread that waits for nothing else.

Python does what is to be done at a signal in its first thread, as soon as that one runs. But the system may have given
the signal to another thread, such as one that is just being started; the first one then sleeps on, on a busy machine
for ever. So the numbers of signals are read from where Python writes them at once, in whatever thread it is told.
"""

import signal
import socket
import threading
import time
from typing import Any

from granian._signals import set_main_signals
from granian.server.common import AbstractServer

TO_STOP = (signal.SIGINT, signal.SIGTERM)
AGAIN = 0.1  # seconds


class Signals:
    """Those to stop, from now on; made in the first thread of a process, once."""

    def __init__(self) -> None:
        self._heard, self._written = socket.socketpair()
        self._written.setblocking(False)  # who does not listen any more holds up nobody
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        set_main_signals(self.nothing)

    def nothing(self, *_: object) -> None:
        """Take the place of what Python would do. (It also keeps this object, and with it what is written to.)"""

    def next(self, seconds: float | None = None) -> int | None:
        """Wait for the next one; None if none came in time."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._heard.settimeout(left)
            try:
                number = self._heard.recv(1)[0]
            except TimeoutError:
                return None
            if number in TO_STOP:
                return number


def interrupted_by(signals: Signals, server: AbstractServer[Any]) -> None:
    """Have the server stop when it is told to, and go on at a SIGHUP, which would cost it requests.

    There is nothing to reopen: files of logs are opened for each write. Processes that it starts ignore it as well.

    Its own handler takes a lock, which its first thread may have at that moment; so it is called in another one. And it
    is called until the process ends: the server forgets one that comes while it sees that a worker has ended.
    """
    interrupt = server.signal_handler_interrupt
    server.signal_handler_interrupt = signals.nothing  # type: ignore[method-assign]
    server.signal_handler_reload = signal.SIG_IGN  # type: ignore[method-assign, assignment]

    def listen() -> None:
        signals.next()
        while True:
            interrupt()
            time.sleep(AGAIN)

    threading.Thread(target=listen, name="signals", daemon=True).start()
