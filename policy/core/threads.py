"""Start threads. All of them are daemons, so they do not keep the process alive."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread, Timer
from typing import Any

log = logging.getLogger("authz.server")

_QUIET = 10.0  # seconds between two log lines about a shortage

_told_at = -_QUIET


def start_thread(name: str, run: Callable[..., object], *args: Any) -> Thread:
    """Start a thread and return it. Raise `RuntimeError` if the system cannot create one."""
    thread = Thread(target=run, args=args, name=name, daemon=True)
    thread.start()
    return thread


def start_timer(seconds: float, run: Callable[..., object], *args: Any) -> Timer:
    """Call `run` in a thread of its own after this many seconds, unless the timer is cancelled before."""
    timer = Timer(seconds, run, args)
    timer.daemon = True
    timer.start()
    return timer


def thread_pool(
    size: int, name: str = "", initializer: Callable[..., object] | None = None, initargs: tuple[Any, ...] = ()
) -> ThreadPoolExecutor:
    """Return a pool of up to `size` threads, started on demand."""
    return ThreadPoolExecutor(size, name, initializer, initargs)


def note_shortage(reason: RuntimeError) -> None:
    """Log that no thread could be started. Rate-limited, since under load every request may fail so."""
    global _told_at
    now = time.monotonic()
    if now - _told_at >= _QUIET:
        _told_at = now
        log.error("cannot start a thread: %s", reason)
