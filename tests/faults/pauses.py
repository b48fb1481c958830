"""A program that hangs instead of ending."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil


@contextmanager
def paused(process_id: int) -> Iterator[None]:
    """The process and all below it: their connections stay, and nobody answers on them."""
    stopped = []
    try:
        parent = psutil.Process(process_id)
        for process in (parent, *parent.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
                stopped.append(process)
        yield
    finally:
        for process in reversed(stopped):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
