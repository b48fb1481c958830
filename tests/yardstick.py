"""Processor time beside that of a fixed piece of work, so that no machine is too slow for a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Made = TypeVar("Made")
Done = TypeVar("Done")

WORDS = 300_000
QUIET = 0.1  # seconds of processor time that `work` takes a machine with nothing else to do
TRIES = 5


@contextmanager
def seconds_at_most(limit: float) -> Iterator[None]:
    """What this thread does in it takes fewer seconds, or as many more as this machine is slower than a quiet one.

    How slow it is is only measured where a quiet one would have been too slow.
    """
    started = time.thread_time()
    yield
    taken = time.thread_time() - started
    if taken >= limit and taken >= (allowed := limit * max(slowness(), slowness())):
        raise TooSlow(f"{taken:.3f} s of processor time, where {allowed:.3f} s are allowed")


class TooSlow(AssertionError):
    """What was done takes too long."""


def within(limit: float, work: Callable[[Made], Done], made: Callable[[], Made]) -> Done:
    """Work on what is made, again if need be, until it takes fewer seconds: for limits that are close to what it takes.

    What else runs makes work slower at times, and never faster. Each attempt is on something made anew.
    """
    for attempt in range(TRIES):
        subject = made()
        try:
            with seconds_at_most(limit):
                return work(subject)
        except TooSlow:
            if attempt == TRIES - 1:
                raise
    raise AssertionError("no attempt was made")


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
