"""Base of sync_facts and drain_outbox: configuration file, repetition, metrics."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, connection

from localsql.sync.config import Config, ConfigContext, ConfigRejected, config_from_text
from localsql.sync.watch import Metrics, NotificationListener, again_and_again, seconds, served
from policy.errors import AuthzError, Unavailable
from policy.files import STANDARD_INPUT, STANDARD_INPUT_SHOWN, decoded, shown_name, text_of_file
from policy.management.command import PolicyCommand, number

LAST_PORT = 65_535


class SyncCommand(PolicyCommand):
    """Base of commands that read a configuration file and run once or repeatedly."""

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("config", metavar="CONFIG", help="YAML file; - for standard input.")
        parser.add_argument("--watch", type=seconds, metavar="TIME", help="Repeat at this interval, e.g. 60s, 5m, 1h.")
        parser.add_argument("--skip-bad", action="store_true", help="Skip invalid rows and report them.")
        parser.add_argument(
            "--connection", default="", metavar="URL", help="Database, if CONFIG has no `dbs`. ${VARIABLE} is expanded."
        )
        parser.add_argument(
            "--metrics-port", type=number, metavar="PORT", help="Serve Prometheus metrics; needs --watch."
        )

    def config(self, name: str, connection: str) -> Config:
        if name == STANDARD_INPUT:
            shown, folder = STANDARD_INPUT_SHOWN, Path()
            text = decoded(sys.stdin.buffer.read(), shown)
        else:
            shown, folder = shown_name(name), Path(name).absolute().parent
            text = text_of_file(name)
        try:
            return config_from_text(text, ConfigContext(folder, os.environ, connection))
        except ConfigRejected as reason:
            raise CommandError(f"{shown}: {reason.message}") from None

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
        begun = time.monotonic()
        try:
            failed = once()
            metrics.ended("failed" if failed else "ok", time.monotonic() - begun)
        except (AuthzError, Unavailable) as reason:
            self._report_failure(reason.message, metrics, begun)
            failed = isinstance(reason, Unavailable)
        except Error as reason:  # our own database
            self._report_failure(" ".join(str(reason).split()), metrics, begun)
            connection.close()
            failed = True
        except OSError as reason:  # such as a full disk
            self._report_failure(str(reason), metrics, begun)
            failed = True
        except CommandError as reason:  # not transient
            self._report_failure(str(reason), metrics, begun)
            failed = False
        self.stdout.flush()
        return failed

    def _report_failure(self, message: str, metrics: Metrics, begun: float) -> None:
        self.stderr.write(f"{time.strftime('%H:%M:%S')} error: {message}")
        metrics.ended("failed", time.monotonic() - begun)

    def check_watch(self, watch: float | None, port: int | None, **options: Any) -> None:
        if port is not None and watch is None:
            raise CommandError("--metrics-port needs --watch.")
