"""Apply the changes that an application wrote to its outbox."""

import time
from typing import Any

from localsql.sync.config import Outbox
from localsql.sync.outbox import Drained, drain
from localsql.sync.watch import Metrics, SyncCommand
from policy.management.command import counted, enter_space_of
from policy.models import Environment


class Command(SyncCommand):
    help = "Apply the changes in your application's outbox, each exactly once, and delete them from the outbox."

    def act(self, environment: Environment, *, config: str, connection: str, **options: Any) -> None:
        watch, port, skips_bad = options["watch"], options["metrics_port"], options["skip_bad"]
        read = self.config(config, connection)
        if watch is None:
            self.stdout.write(_sentence(self._once(environment, read.outbox, skips_bad, Drained())))
            return
        metrics = Metrics("authz_outbox")
        self.keep(lambda: self._again(environment, read.outbox, skips_bad, metrics), read, watch, metrics, port)

    def _once(self, environment: Environment, outbox: Outbox | None, skips_bad: bool, done: Drained) -> Drained:
        with self.progress("draining") as shown:

            def report_bad(sentence: str) -> None:
                with shown.aside():
                    self.stderr.write(sentence)

            drain(environment.pk, outbox, skips_bad, report_bad, done)
        return done

    def _again(self, environment: Environment, outbox: Outbox | None, skips_bad: bool, metrics: Metrics) -> bool:
        done = Drained()
        enter_space_of(environment)
        try:
            self._once(environment, outbox, skips_bad, done)
        finally:
            metrics.add("rows_drained_total", done.rows)
            if done.rows or done.skipped:
                self.stdout.write(f"{time.strftime('%H:%M:%S')} {_sentence(done)}")
        return False


def _sentence(done: Drained) -> str:
    made = f"{counted(done.rows, 'row')} applied, in {counted(done.revisions, 'revision')}"
    return f"{made}; {done.skipped:,} skipped" if done.skipped else made
