"""Does something again and again until a signal ends it; sooner if PostgreSQL is told `NOTIFY authz_sync`."""

from __future__ import annotations

import re
import select
import signal
import threading
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from localsql.sync.config import Database, Kind
from localsql.sync.sources import postgresql

CHANNEL = "authz_sync"
FIRST_PAUSE = 1.0  # seconds after a failure that may pass; doubled after each further one
LONGEST = 7 * 24 * 3600.0  # seconds
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """Parse `60s`, `5m`, `1h`, or a number of seconds."""
    found = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)([smh]?)", text, re.ASCII)
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < value <= LONGEST:
        raise ArgumentTypeError(f"`{text}` is no time such as 60s, 5m or 1h, and at most 168h")
    return value


class Bell:
    """Connections that listen to what the application notifies its PostgreSQL databases of."""

    def __init__(self, databases: Sequence[Database]):
        self._databases = {each.name: each for each in databases if each.kind is Kind.POSTGRES}
        self._open: dict[str, Any] = {}

    def listen(self) -> None:
        """Open the connections before anything is read, so that no notification is missed.

        A database that is away is passed over: its readers report it.
        """
        for name, database in self._databases.items():
            if name not in self._open:
                connection = postgresql.listening(database, CHANNEL)
                if connection is not None:
                    self._open[name] = connection

    def wait(self, pause: float) -> bool:
        """Wait so many seconds, or until something is notified; say whether it was."""
        until = time.monotonic() + pause
        while True:
            names = {connection.fileno(): name for name, connection in self._open.items()}
            ready, _, _ = select.select(list(names), [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return False
            rang = [self._rang(names[number]) for number in ready]
            if any(rang):
                return True

    def _rang(self, name: str) -> bool:
        heard = postgresql.heard(self._databases[name], self._open[name])
        if heard is None:
            del self._open[name]
        return bool(heard)

    def close(self) -> None:
        for name, connection in self._open.items():
            postgresql.close(self._databases[name], connection)
        self._open.clear()


class Stopped(BaseException):
    """A signal came that ends the loop."""


def again_and_again(once: Callable[[], bool], every: float, bell: Bell) -> None:
    """Run `once` until a signal comes. It says whether it failed in a way that may pass, and is then run sooner."""
    failures = 0
    with _stopped_by_signals(), suppress(Stopped, KeyboardInterrupt):
        while True:
            bell.listen()
            failures = failures + 1 if once() else 0
            pause = min(every, FIRST_PAUSE * 2 ** min(failures - 1, 20)) if failures else every
            bell.wait(pause)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = {each: signal.signal(each, _stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in usual.items():
            signal.signal(each, handler)


def _stop(number: int, frame: object) -> None:
    raise Stopped
