"""Delete facts from history for good."""

import sys
from typing import Any

from django.core.management.base import CommandError

from facts.history import forget, matches
from facts.wire import pattern_from_text
from policy.management.command import PATTERN, PolicyCommand, counted
from policy.models import Environment

LOST = (
    "Requests as of {revisions} will be answered as if these facts had never existed, and a reader"
    " of the change feed that has not passed revision {end:,} will not see that they were deleted."
)


class Command(PolicyCommand):
    help = "Remove deleted facts from history for good. Asks for confirmation."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("pattern", metavar="PATTERN", help=PATTERN)
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def act(self, environment: Environment, *, pattern: str, yes: bool, **options: Any) -> None:
        wanted = pattern_from_text(pattern)
        with self.progress("searching history"):
            found = matches(environment.pk, wanted)
        if found.stored:
            be, them = ("is", "it") if found.stored == 1 else ("are", "them")
            self.stdout.write(
                f"{counted(found.stored, 'matching fact')} {be} still stored and not affected."
                f" To forget {them}, too, delete {them} with delete_facts first."
            )
        if not found.past:
            self.stdout.write("No past fact matches. Nothing was forgotten.")
            return
        first, last = f"{found.first:,}", f"{found.last:,}"
        revisions = f"revision {first}" if first == last else f"revisions {first} to {last}"
        self.stdout.write(f"{counted(found.past, 'past fact')} found, valid at {revisions}.")
        self.stdout.write(LOST.format(revisions=revisions, end=found.last + 1))
        if not yes:
            self.ask()
        with self.progress("forgetting facts"):
            forgotten = forget(environment.pk, wanted)
        self.stdout.write(f"{counted(forgotten, 'past fact')} forgotten")

    def ask(self) -> None:
        """Ask for a yes; raise `CommandError` on any other answer, or without any input."""
        self.stdout.write("Forget them for good? Type yes to confirm: ", ending="")
        self.stdout.flush()
        try:
            said = sys.stdin.readline() if sys.stdin is not None else ""
        except (OSError, ValueError):  # it is closed
            said = ""
        if not said:
            self.stdout.write()
            raise CommandError("Refusing to forget facts without confirmation. Pass --yes to skip the prompt.")
        if said.strip().lower() != "yes":
            raise CommandError("Not confirmed. Nothing was forgotten.")
