"""Receives signals to stop, in a thread that waits for nothing else.

Python runs signal handlers in its main thread, the next time that thread runs. But the system may give the signal to
another thread, such as one that is just being started; the main thread then sleeps on, on a busy machine for ever. So
the numbers of signals are read from a wakeup socket (`signal.set_wakeup_fd`). Python writes to it at once, in whichever
thread the signal arrives.
"""

import signal
import socket
import threading
import time
from typing import Any

from granian._signals import set_main_signals
from granian.server.common import AbstractServer

TO_STOP = (signal.SIGINT, signal.SIGTERM)
AGAIN = 0.1  # seconds between calls of granian's handler


class Signals:
    """Receives the signals to stop, from its creation on. Made once in a process, in the main thread."""

    def __init__(self) -> None:
        self._heard, self._written = socket.socketpair()
        self._written.setblocking(False)  # a signal does not block where nobody reads any more
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        set_main_signals(self.nothing)

    def nothing(self, *_: object) -> None:
        """Do nothing, as the handler of the signals. (A bound method, it also keeps this object and its sockets.)"""

    def next(self, seconds: float | None = None) -> int | None:
        """Wait for the next signal to stop, and return its number; None if none came in time."""
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
    """Have granian's server stop at a signal to stop. Have it ignore SIGHUP: its reload would cost requests.

    Nothing needs to be reopened at SIGHUP: log files are opened for each write. Workers ignore it as well.

    Granian's own handler takes a lock, which the main thread may hold when the signal comes; so another thread calls
    the handler. It calls it again and again until the process ends, because the server forgets a call that comes while
    it notices the end of a worker.
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
