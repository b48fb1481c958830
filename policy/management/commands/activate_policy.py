"""Back to a policy that was loaded before."""

from typing import Any

from policy.management.command import PolicyCommand, number
from policy.models import Environment
from policy.publishing import activate
from policy.revisions import by_command


class Command(PolicyCommand):
    help = "Make an earlier version the active policy again. Its tests are not run: what takes back must be quick."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("version_number", type=number, metavar="VERSION", help="as policy_history shows it")

    def act(self, environment: Environment, *, version_number: int, **options: Any) -> None:
        self.stdout.write(activate(environment.pk, version_number, by=by_command("activate_policy")).message)
