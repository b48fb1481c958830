"""Compare facts with their source rows, and apply the differences; or apply the changes in an outbox."""

import sys
import time
from typing import Any

from django.core.management.base import CommandError

from facts.accept import sentences
from localsql.sync.config import Config, SyncPattern
from localsql.sync.outbox import Drained, drain
from localsql.sync.run import (
    Failed,
    MostDeletes,
    OnProgress,
    Passed,
    SyncOptions,
    SyncPlan,
    lines_of,
    most_deletes,
    passed,
    summary,
)
from localsql.sync.watch import Metrics, SyncCommand
from policy.management.command import Progress, counted, enter_space_of
from policy.models import Environment

OUT_OF_STEP = 2


class Command(SyncCommand):
    help = "Compare facts with the rows of your databases. Exits with 2 if they differ and --apply is not given."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        apply = parser.add_argument(
            "--apply", action="store_true", help="Store and delete facts (default: print the differences)."
        )
        most = parser.add_argument(
            "--max-deletes", type=most_deletes, default=MostDeletes(), metavar="SHARE",
            help="Skip patterns where more would be deleted: a share or number of facts (default: %(default)s).",
        )  # fmt: skip
        outbox = parser.add_argument(
            "--outbox", action="store_true",
            help="Instead, apply the changes in your application's outbox, each exactly once, and delete them from it.",
        )  # fmt: skip
        self.never_with(outbox, apply, most)

    def act(self, environment: Environment, *, config: str, connection: str, **options: Any) -> None:
        watch, port = options["watch"], options["metrics_port"]
        read = self.config(config, connection)
        if options["outbox"]:
            self._drain(environment, read, options["skip_bad"], watch, port)
            return
        wanted = SyncOptions(options["apply"], options["max_deletes"], options["skip_bad"])
        if read.is_for_local_sql:
            self.stderr.write(
                "warning: this file is also for local SQL (`dialect`, `domains` or `not_null`), which would use "
                "both the rows and the facts that are stored here; sync these facts or bind them, not both"
            )
        if watch is None:
            found = self._once(environment, read, wanted, is_quiet=False)
            self.stdout.write(summary(found))
            if found.failed:
                raise CommandError(f"Not synchronized: {', '.join(str(each.pattern) for each in found.failed)}")
            if not found.is_in_step:
                sys.exit(OUT_OF_STEP)
            return
        metrics = Metrics("authz_sync")
        self.keep(lambda: self._again(environment, read, wanted, metrics), read, watch, metrics, port)

    def _once(self, environment: Environment, config: Config, wanted: SyncOptions, is_quiet: bool) -> Passed:
        with self.progress("comparing") as shown:
            found = passed(environment.pk, config, wanted, _Listener(self, shown, len(config.patterns), is_quiet))
        for sentence in sentences(found.unknown):
            self.stderr.write(f"warning: {sentence}")
        return found

    def _again(self, environment: Environment, config: Config, wanted: SyncOptions, metrics: Metrics) -> bool:
        enter_space_of(environment)
        found = self._once(environment, config, wanted, is_quiet=True)
        self.stdout.write(f"{time.strftime('%H:%M:%S')} {summary(found)}")
        _count(found, metrics)
        if any(each.may_pass for each in found.failed):
            return True
        if found.failed:
            raise CommandError(f"Not synchronized: {', '.join(str(each.pattern) for each in found.failed)}")
        return False

    def _drain(
        self, environment: Environment, read: Config, skips_bad: bool, watch: float | None, port: int | None
    ) -> None:
        def once(done: Drained) -> None:
            with self.progress("draining") as shown:

                def report_bad(sentence: str) -> None:
                    with shown.aside():
                        self.stderr.write(sentence)

                drain(environment.pk, read.outbox, skips_bad, report_bad, done)

        def again() -> bool:
            done = Drained()
            enter_space_of(environment)
            try:
                once(done)
            finally:
                metrics.add("rows_drained_total", done.rows)
                if done.rows or done.skipped:
                    self.stdout.write(f"{time.strftime('%H:%M:%S')} {_sentence(done)}")
            return False

        if watch is None:
            once(done := Drained())
            self.stdout.write(_sentence(done))
            return
        metrics = Metrics("authz_outbox")
        self.keep(again, read, watch, metrics, port)


def _sentence(done: Drained) -> str:
    made = f"{counted(done.rows, 'row')} applied, in {counted(done.revisions, 'revision')}"
    return f"{made}; {done.skipped:,} skipped" if done.skipped else made


class _Listener:
    """Prints each result as soon as it is known; with --watch, only differences."""

    def __init__(self, command: Command, shown: Progress, patterns: int, is_quiet: bool):
        self.command, self.shown, self.patterns, self.is_quiet = command, shown, patterns, is_quiet

    def begin(self, pattern: SyncPattern, place: int) -> OnProgress:
        self.shown.what = f"{place + 1} of {self.patterns}: {pattern}"
        return lambda compared: self.shown.tell(compared)

    def compared(self, plan: SyncPlan) -> None:
        if self.is_quiet and plan.is_in_step:
            return
        with self.shown.aside():
            for line in lines_of(plan):
                self.command.stdout.write(line)

    def failed(self, failed: Failed) -> None:
        with self.shown.aside():
            self.command.stderr.write(f"{failed.pattern}: {failed.reason}")

    def applying(self, changes: int) -> OnProgress:
        self.shown.what = "applying"
        return lambda done: self.shown.tell(done, done / changes)


def _count(found: Passed, metrics: Metrics) -> None:
    for plan in found.plans:
        pattern = str(plan.pattern)
        metrics.set("pattern_failed", 0, pattern=pattern)
        for state, number in (("equal", plan.equal), ("added", plan.added.count), ("deleted", plan.deleted.count)):
            metrics.set("facts", number, pattern=pattern, state=state)
        if found.is_applied:
            metrics.add("facts_changed_total", plan.added.count, pattern=pattern, change="added")
            metrics.add("facts_changed_total", plan.deleted.count, pattern=pattern, change="deleted")
    for failed in found.failed:
        metrics.set("pattern_failed", 1, pattern=str(failed.pattern))
