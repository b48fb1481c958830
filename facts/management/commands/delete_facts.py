"""Delete the facts that match a pattern, count them, or delete past facts from history for good."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.core.management.base import CommandError

from facts import history, read, store
from facts.store import Deletes
from facts.wire import FactPattern, pattern_from_text
from policy.active import active_program
from policy.core.journal import by_command
from policy.management.command import PATTERN, PolicyCommand, counted
from policy.models import Environment
from policy.rules.declarations import did_you_mean

LOST = (
    "Requests as of {revisions} will be answered as if these facts had never existed, and a reader"
    " of the change feed that has not passed revision {end:,} will not see that they were deleted."
)


class NothingMatches(Exception):
    """No fact matches the pattern: no empty revision is recorded."""


def deletion(environment: Environment, wanted: FactPattern) -> Iterator[Deletes]:
    if not read.count(environment.pk, wanted):
        raise NothingMatches
    yield Deletes([wanted])


class Command(PolicyCommand):
    help = "Delete all facts that match a pattern, or with --forget those that were deleted before from history."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("pattern", metavar="PATTERN", help=PATTERN)
        dry_run = parser.add_argument(
            "--dry-run", action="store_true", help="Count matching facts, but do not delete them."
        )
        forget = parser.add_argument(
            "--forget", action="store_true",
            help="Instead, remove past facts that match from history for good. Asks for confirmation.",
        )  # fmt: skip
        yes = parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")
        self.never_with(forget, dry_run)
        self.only_with(yes, forget)

    def act(
        self, environment: Environment, *, pattern: str, dry_run: bool, forget: bool, yes: bool, **options: Any
    ) -> None:
        wanted = pattern_from_text(pattern)
        if forget:
            self._forget(environment, wanted, yes)
            return
        if dry_run:
            with self.progress("counting facts"):
                number = read.count(environment.pk, wanted)
            self.stdout.write(f"{counted(number, 'matching fact')}; dry run, nothing was deleted")
            self._check(environment, wanted, number)
            return
        deleted = 0
        with self.progress("deleting facts"), suppress(NothingMatches):
            deleted = store.apply(environment.pk, deletion(environment, wanted), by_command("delete_facts")).deleted
        self.stdout.write(f"{counted(deleted, 'fact')} deleted")
        self._check(environment, wanted, deleted)

    def _check(self, environment: Environment, wanted: FactPattern, matches: int) -> None:
        """Warn of a predicate that the policy does not have: a misspelled pattern revokes nothing."""
        program = None if matches else active_program(environment.pk)
        if program is not None and wanted.predicate not in program.predicates:
            hint = did_you_mean(wanted.predicate, program.predicates)
            self.stderr.write(f"warning: the policy has no predicate `{wanted.predicate}`{hint and f' ({hint})'}")

    def _forget(self, environment: Environment, wanted: FactPattern, yes: bool) -> None:
        with self.progress("searching history"):
            found = history.matches(environment.pk, wanted)
        if found.stored:
            be, them = ("is", "it") if found.stored == 1 else ("are", "them")
            self.stdout.write(
                f"{counted(found.stored, 'matching fact')} {be} still stored and not affected."
                f" To forget {them}, too, delete {them} without --forget first."
            )
        if not found.past:
            self.stdout.write("No past fact matches. Nothing was forgotten.")
            return
        first, last = f"{found.first:,}", f"{found.last:,}"
        revisions = f"revision {first}" if first == last else f"revisions {first} to {last}"
        self.stdout.write(f"{counted(found.past, 'past fact')} found, valid at {revisions}.")
        self.stdout.write(LOST.format(revisions=revisions, end=found.last + 1))
        if not yes:
            self._ask()
        with self.progress("forgetting facts"):
            forgotten = history.forget(environment.pk, wanted)
        self.stdout.write(f"{counted(forgotten, 'past fact')} forgotten")

    def _ask(self) -> None:
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
