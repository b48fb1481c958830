"""Make an earlier version the active policy again."""

from typing import Any

from django.core.management.base import CommandError

from policy.errors import PolicyTestsFailed
from policy.ground.journal import by_command
from policy.management.command import PolicyCommand, number
from policy.models import Environment
from policy.publishing import activate, results_of


class Command(PolicyCommand):
    help = "Make an earlier version the active policy again, if the tests in it pass."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("version_number", type=number, metavar="VERSION", help="as policy_history shows it")
        parser.add_argument("--force", action="store_true", help="make it active even if its tests fail")

    def act(self, environment: Environment, *, version_number: int, force: bool, **options: Any) -> None:
        try:
            done = activate(environment.pk, version_number, force=force, by=by_command("activate_policy"))
        except PolicyTestsFailed as reason:
            for error in reason.report.errors:
                self.stderr.write(error)
            told = f"{results_of(reason.report)}; nothing is changed (--force makes it active all the same)"
            raise CommandError(told) from None
        for error in done.draft.report.errors if done.draft else ():
            self.stderr.write(error)
        self.stdout.write(done.message)
