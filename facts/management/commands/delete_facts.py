"""Delete the facts that match a pattern, or count them."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from facts import read, store
from facts.store import Deletes
from facts.wire import FactPattern, pattern_from_text
from policy.active import active_program
from policy.core.journal import by_command
from policy.management.command import PATTERN, PolicyCommand, counted
from policy.models import Environment
from policy.rules.declarations import did_you_mean


class NothingMatches(Exception):
    """No fact matches the pattern: no empty revision is recorded."""


def deletion(environment: Environment, wanted: FactPattern) -> Iterator[Deletes]:
    if not read.count(environment.pk, wanted):
        raise NothingMatches
    yield Deletes([wanted])


class Command(PolicyCommand):
    help = "Delete all facts that match a pattern."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("pattern", metavar="PATTERN", help=PATTERN)
        parser.add_argument("--dry-run", action="store_true", help="Count matching facts, but do not delete them.")

    def act(self, environment: Environment, *, pattern: str, dry_run: bool, **options: Any) -> None:
        wanted = pattern_from_text(pattern)
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
