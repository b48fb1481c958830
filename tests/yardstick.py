"""Processor time beside that of a fixed piece of work, so that no machine is too slow for a test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

WORDS = 300_000
QUIET = 0.1  # seconds of processor time that `work` takes a machine with nothing else to do


@contextmanager
def seconds_at_most(limit: float) -> Iterator[None]:
    """What this thread does in it takes fewer seconds, or as many more as this machine is slower than a quiet one."""
    slower, started = slowness(), time.thread_time()
    yield
    taken = time.thread_time() - started
    allowed = limit * max(slower, slowness())
    assert taken < allowed, f"{taken:.2f} s of processor time, where {allowed:.2f} s are allowed"


def slowness() -> float:
    started = time.thread_time()
    work()
    return max(1.0, (time.thread_time() - started) / QUIET)


def work() -> None:
    """Some of what Python does most: texts, dictionaries, arithmetic."""
    seen: dict[str, int] = {}
    for number in range(WORDS):
        word = f"w{number % 997}"
        seen[word] = seen.get(word, 0) + number
