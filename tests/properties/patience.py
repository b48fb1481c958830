"""An alarm around what may take long: the run goes on without it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager


class TookTooLong(BaseException):
    """No Exception: whoever catches those, to answer with an error of its own, is not to catch this."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Inside of another, the other's time goes on."""
    before = signal.signal(signal.SIGALRM, _ring)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    started = time.monotonic()
    try:
        yield
    finally:
        rest = max(left - (time.monotonic() - started), 0.001) if left else 0
        signal.setitimer(signal.ITIMER_REAL, rest)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)


def _ring(*_: object) -> None:
    raise TookTooLong
