"""Repeat a sync or drain until a signal arrives, with metrics."""

import os
import re
import select
import signal
import threading
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, connection
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, start_http_server

from localsql.sync.config import (
    Config,
    ConfigContext,
    ConfigRejected,
    Database,
    DatabaseKind,
    SourceFailed,
    config_from_text,
)
from localsql.sync.sources import SqlConnection, opened
from policy.errors import AuthzError, Unavailable, one_line
from policy.files import STANDARD_INPUT, bundle_of_files
from policy.management.command import PolicyCommand, number

# ---- Prometheus metrics of a long-running command: `http://127.0.0.1:PORT/metrics` --------------------------------

_METRICS: dict[str, tuple[type[Counter | Gauge], str]] = {
    "passes_total": (Counter, "Sync runs by outcome."),
    "facts_changed_total": (Counter, "Facts added and deleted."),
    "facts": (Gauge, "Facts per pattern in the last run: unchanged, added, deleted."),
    "pattern_failed": (Gauge, "1 if the pattern failed in the last run."),
    "last_pass_seconds": (Gauge, "Duration of the last run."),
    "last_pass_timestamp_seconds": (Gauge, "End time of the last run."),
    "last_success_timestamp_seconds": (Gauge, "End time of the last successful run."),
    "rows_drained_total": (Counter, "Outbox rows processed."),
}


class Metrics:
    """Metrics by name and labels; a metric is created with its first value."""

    def __init__(self, prefix: str):
        self.registry = CollectorRegistry()
        self._prefix = prefix
        self._made: dict[str, Any] = {}

    def set(self, name: str, value: float, **labels: str) -> None:
        self._metric(name, labels).set(value)

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        self._metric(name, labels).inc(value)

    def ended(self, outcome: str, took: float) -> None:
        """Count a finished run; its outcome is `ok` or `failed`."""
        self.add("passes_total", outcome=outcome)
        self.set("last_pass_seconds", took)
        self.set("last_pass_timestamp_seconds", time.time())
        if outcome == "ok":
            self.set("last_success_timestamp_seconds", time.time())

    def _metric(self, name: str, labels: dict[str, str]) -> Any:
        if name not in self._made:
            kind, told = _METRICS[name]
            self._made[name] = kind(f"{self._prefix}_{name}", told, sorted(labels), registry=self.registry)
        return self._made[name].labels(**labels) if labels else self._made[name]


@contextmanager
def served(metrics: Metrics, port: int | None) -> Iterator[int | None]:
    """Serve the metrics on localhost for the duration of the context; 0 is any free port, None disables it."""
    if port is None:
        yield None
        return
    disable_created_metrics()
    server, thread = start_http_server(port, "127.0.0.1", metrics.registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---- watch --------------------------------------------------------------------------------------------------------
# Repeats a function until a signal arrives; a PostgreSQL notification (`NOTIFY authz_sync`) starts it early.

CHANNEL = "authz_sync"
FIRST_PAUSE = 1.0  # seconds before a retry after a transient error (exponential backoff)
LONGEST = 7 * 24 * 3600.0  # seconds
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)([smh]?)", text, re.ASCII)
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < value <= LONGEST:
        raise ArgumentTypeError(f"`{text}` is not an interval such as 60s, 5m or 1h, up to 168h")
    return value


class NotificationListener:
    """Connections that listen for notifications from the application's PostgreSQL databases."""

    def __init__(self, databases: Sequence[Database]):
        self._databases = {each.name: each for each in databases if each.kind is DatabaseKind.POSTGRES}
        self._open: dict[str, SqlConnection] = {}

    def listen(self) -> None:
        """Open the connections before anything is read, so that no notification is missed.

        Skip databases that are unreachable: their readers report the error.
        """
        for name, database in self._databases.items():
            if name not in self._open:
                with suppress(SourceFailed):
                    source = opened(database)
                    source.execute(f"LISTEN {CHANNEL}")
                    self._open[name] = source

    def wait(self, pause: float) -> bool:
        """Wait for a notification, at most `pause` seconds. Return whether there was one."""
        until = time.monotonic() + pause
        while True:
            names = {source.raw.fileno(): name for name, source in self._open.items()}
            ready, _, _ = select.select(list(names), [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return False
            rang = [self._rang(names[number]) for number in ready]
            if any(rang):
                return True

    def _rang(self, name: str) -> bool:
        source = self._open[name]
        try:
            return bool(list(source.raw.notifies(timeout=0)))
        except source.error:  # the connection is lost
            source.close()
            del self._open[name]
            return False

    def close(self) -> None:
        for source in self._open.values():
            source.close()
        self._open.clear()


class WatchStopped(BaseException):
    """Raised by the signals that end the loop. For KeyboardInterrupt, psycopg would wait for the server's answer."""


def again_and_again(once: Callable[[], bool], every: float, bell: NotificationListener) -> None:
    """Run `once` until a signal arrives. If it returns True (a transient error), it is retried sooner."""
    failures = 0
    with _stopped_by_signals(), suppress(WatchStopped, KeyboardInterrupt):
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
    raise WatchStopped


# ---- the base of `sync_facts`: configuration file, repetition, metrics -----------------------------

LAST_PORT = 65_535


class SyncCommand(PolicyCommand):
    """Base of commands that read a configuration file and run once or repeatedly."""

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("config", metavar="CONFIG", help="YAML file; - for standard input.")
        watch = parser.add_argument(
            "--watch", type=seconds, metavar="TIME", help="Repeat at this interval, e.g. 60s, 5m, 1h."
        )
        parser.add_argument("--skip-bad", action="store_true", help="Skip invalid rows and report them.")
        parser.add_argument(
            "--connection", default="", metavar="URL", help="Database, if CONFIG has no `dbs`. ${VARIABLE} is expanded."
        )
        port = parser.add_argument(
            "--metrics-port", type=number, metavar="PORT", help="Serve Prometheus metrics; needs --watch."
        )
        self.only_with(port, watch)

    def config(self, name: str, connection: str) -> Config:
        (file,) = bundle_of_files([name]).parts
        folder = Path() if name == STANDARD_INPUT else Path(name).absolute().parent
        try:
            return config_from_text(file.text, ConfigContext(folder, os.environ, connection))
        except ConfigRejected as reason:
            raise CommandError(f"{file.filename}: {reason.message}") from None

    def keep(self, once: Callable[[], bool], config: Config, every: float, metrics: Metrics, port: int | None) -> None:
        """Run `once` repeatedly. It returns whether it failed with a transient error."""
        if port is not None and port > LAST_PORT:
            raise CommandError(f"--metrics-port must be between 0 and {LAST_PORT}.")
        bell = NotificationListener(config.databases)
        with ExitStack() as open_ones:
            open_ones.callback(bell.close)
            try:
                opened = open_ones.enter_context(served(metrics, port))
            except OSError as reason:
                raise CommandError(f"Cannot serve metrics on port {port}: {reason.strerror}.") from None
            if opened is not None:
                self.stdout.write(f"metrics at http://127.0.0.1:{opened}/metrics")
            again_and_again(lambda: self._kept_going(once, metrics), every, bell)

    def _kept_going(self, once: Callable[[], bool], metrics: Metrics) -> bool:
        """Run `once`. Report errors instead of raising them, and return whether they are transient."""
        begun, is_transient, error = time.monotonic(), False, None
        try:
            is_transient = once()
        except (AuthzError, Unavailable) as reason:
            is_transient, error = isinstance(reason, Unavailable), reason.message
        except Error as reason:  # our own database
            is_transient, error = True, one_line(reason)
            connection.close()
        except OSError as reason:  # such as a full disk
            is_transient, error = True, str(reason)
        except CommandError as reason:
            error = str(reason)
        if error is not None:
            self.stderr.write(f"{time.strftime('%H:%M:%S')} error: {error}")
        metrics.ended("ok" if error is None and not is_transient else "failed", time.monotonic() - begun)
        self.stdout.flush()
        return is_transient
