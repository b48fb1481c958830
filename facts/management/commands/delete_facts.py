"""Facts deleted by pattern, counted first."""

from django.core.management.base import BaseCommand, CommandError

from facts import read, store
from facts.management.commands.load_facts import environment_id_of
from facts.notation import pattern_from_text
from facts.store import Deletes
from policy.errors import AuthzError
from policy.models import DEFAULT_SLUG


class Command(BaseCommand):
    help = "Delete the facts that match a pattern, such as: has_role(User:ann, _, Repo:_)"
    requires_system_checks = ()  # they are about the code, and take a quarter of a second

    def add_arguments(self, parser):
        parser.add_argument("pattern")
        parser.add_argument("--environment", default=DEFAULT_SLUG)
        parser.add_argument("--dry-run", action="store_true", help="only count them")

    def handle(self, *, pattern, environment, dry_run, **options):
        environment_id = environment_id_of(environment)
        try:
            wanted = pattern_from_text(pattern)
            if dry_run:
                self.stdout.write(f"{read.count(environment_id, wanted)} facts match; nothing is deleted")
                return
            applied = store.apply(environment_id, [Deletes([wanted])])
        except AuthzError as reason:
            raise CommandError(reason.message) from None
        self.stdout.write(f"{applied.deleted} facts are deleted")
