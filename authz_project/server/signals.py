"""Receives signals to stop, in a thread that waits for nothing else.

Python runs signal handlers in its main thread, the next time that thread runs. But the system may give the signal to
another thread, such as one that is just being started; the main thread then sleeps on, on a busy machine for ever. So
the numbers of signals are read from a wakeup socket (`signal.set_wakeup_fd`). Python writes to it at once, in whichever
thread the signal arrives.
"""

import signal
import socket
import time

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
