"""Old history dropped now."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from facts.pruning import prune
from policy.errors import Unavailable
from policy.management.command import ServiceCommand, above_zero


class Command(ServiceCommand):
    help = "Drop history that is older than HISTORY_DAYS, of every environment; serve does so once an hour."

    def add_arguments(self, parser):
        parser.add_argument("--days", type=above_zero, help="in place of HISTORY_DAYS")

    def handle(self, *, days: float | None, **options: Any) -> None:
        age = days or settings.HISTORY_DAYS
        if not age:
            self.stdout.write("HISTORY_DAYS is 0, so history is kept for ever; nothing is dropped")
            return
        try:
            with self.progress("dropping history") as shown:
                pruned = prune(age, lambda slug, rows: shown.tell(rows, note=f"of {slug}"))
        except Unavailable as reason:
            raise CommandError(reason.message) from None
        for each in pruned:
            self.stdout.write(
                f"{each.slug}: {each.revisions:,} revisions and {each.facts:,} past facts are dropped;"
                f" history begins at revision {each.horizon}"
            )
