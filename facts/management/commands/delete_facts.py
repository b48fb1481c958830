"""Delete the facts that match a pattern, or only count them."""

from typing import Any

from facts import read, store
from facts.notation import pattern_from_text
from facts.store import Deletes
from policy.ground.journal import by_command
from policy.management.command import PolicyCommand
from policy.models import Environment


class Command(PolicyCommand):
    help = "Delete the facts that match a pattern, such as: has_role(User:ann, _, Repo:_)"

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("pattern")
        parser.add_argument("--dry-run", action="store_true", help="only count them")

    def act(self, environment: Environment, *, pattern: str, dry_run: bool, **options: Any) -> None:
        wanted = pattern_from_text(pattern)
        if dry_run:
            with self.progress("counting facts"):
                number = read.count(environment.pk, wanted)
            self.stdout.write(f"{number} facts match; nothing is deleted")
            return
        with self.progress("deleting facts"):
            applied = store.apply(environment.pk, [Deletes([wanted])], by_command("delete_facts"))
        self.stdout.write(f"{applied.deleted} facts are deleted")
