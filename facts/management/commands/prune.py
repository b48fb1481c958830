"""Delete expired facts, and history past its retention."""

from collections.abc import Callable
from itertools import chain
from typing import Any

from facts.history import prune, sweep
from facts.numbering import environments_with_ends
from policy.core.config import settings
from policy.core.spaces import everywhere
from policy.management.command import ServiceCommand, above_zero, counted


def _expired(tell: Callable[[int], None]) -> int:
    return sum(sweep(pk, tell) for pk in environments_with_ends())


class Command(ServiceCommand):
    help = (
        "Move expired facts to history, and delete history older than HISTORY_DAYS, in all environments. `serve` does"
        " the former every minute and the latter every hour."
    )

    def add_arguments(self, parser):
        parser.add_argument(
            "--history-days", type=above_zero, metavar="DAYS",
            help="Delete history older than this (default: HISTORY_DAYS).",
        )  # fmt: skip

    def handle(self, *, history_days: float | None, **options: Any) -> None:
        age = history_days or settings.HISTORY_DAYS
        with self.progress("expiring facts") as shown:
            expired = sum(_expired(shown.tell) for _ in everywhere())
        self.stdout.write(f"{counted(expired, 'fact')} expired")
        if not age:
            self.stdout.write("HISTORY_DAYS is 0: all history is kept")
            return
        with self.progress("deleting history") as shown:
            steps = [prune(age, lambda slug, rows: shown.tell(rows, note=f"of {slug}")) for _ in everywhere()]
        for each in chain.from_iterable(steps):
            self.stdout.write(
                f"{each.slug}: {counted(each.revisions, 'revision')} and {counted(each.facts, 'past fact')} deleted;"
                f" history begins at revision {each.horizon:,}"
            )
