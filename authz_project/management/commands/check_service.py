"""Whether all is there that a server needs, before it is missed."""

import os
from typing import Any

from django.core.management.base import CommandError

from authz_project.checkup import findings, report
from authz_project.command_line.numbers import at_least_one
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = (
        "Look at settings, database, migrations, clock, keys, disk and files; changes nothing. One line each: `ok`, "
        "`warn`, or `fail`, with what to do. Ends with 1 if anything fails."
    )

    def add_arguments(self, parser):
        parser.add_argument(
            "--workers", type=at_least_one, default=os.cpu_count() or 1, help="processes that `serve` is to have"
        )
        parser.add_argument("--threads", type=at_least_one, default=4, help="threads of each")

    def handle(self, *, workers: int, threads: int, **options: Any) -> None:
        if wrong := report(findings(workers, threads), self.stdout.write):
            raise CommandError(wrong)
