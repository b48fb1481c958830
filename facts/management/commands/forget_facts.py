"""Past facts removed for good."""

import sys
from typing import Any

from django.core.management.base import CommandError

from facts.notation import pattern_from_text
from facts.pruning import forget, matches
from policy.management.command import PolicyCommand
from policy.models import Environment

LOST = (
    "Questions as of revision {first} to {last} will be answered as if these facts had never been, and a reader of"
    " changes that has not come past revision {end} will not be told that they were deleted."
)


class Command(PolicyCommand):
    help = "Remove deleted facts from history for good, such as: has_role(User:ann, _, Repo:_)"

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("pattern")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def act(self, environment: Environment, *, pattern: str, yes: bool, **options: Any) -> None:
        wanted = pattern_from_text(pattern)
        with self.progress("looking for past facts"):
            found = matches(environment.pk, wanted)
        if found.stored:
            self.stdout.write(
                f"{found.stored:,} matching facts are stored: they are not touched. To have them forgotten too,"
                " delete them first, with delete_facts"
            )
        if not found.past:
            self.stdout.write("no past fact matches; nothing is forgotten")
            return
        self.stdout.write(
            f"{found.past:,} past facts match, which held between revision {found.first} and {found.last}."
        )
        self.stdout.write(LOST.format(first=found.first, last=found.last, end=found.last + 1))
        if not yes:
            self.ask()
        with self.progress("forgetting facts"):
            forgotten = forget(environment.pk, wanted)
        self.stdout.write(f"{forgotten:,} past facts are forgotten")

    def ask(self) -> None:
        """Ask for a yes; raise `CommandError` on any other answer, or without any input."""
        self.stdout.write("Forget them for good? Type yes: ", ending="")
        self.stdout.flush()
        try:
            said = sys.stdin.readline() if sys.stdin is not None else ""
        except (OSError, ValueError):  # it is closed
            said = ""
        if not said:
            raise CommandError("nobody is there to be asked, so nothing is forgotten; --yes forgets without asking")
        if said.strip().lower() != "yes":
            raise CommandError("nothing is forgotten")
