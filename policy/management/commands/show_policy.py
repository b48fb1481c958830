"""The text of a policy, as it was sent."""

from typing import Any

from policy.errors import NotFound
from policy.management.command import PolicyCommand, number
from policy.models import Environment
from policy.publishing import active_version, version_numbered


class Command(PolicyCommand):
    help = "Print the active policy, or another version of it."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--version-number", "-n", type=number, help="default: the active one")

    def act(self, environment: Environment, *, version_number: int | None, **options: Any) -> None:
        if version_number is None:
            version = active_version(environment.pk)
        else:
            version = version_numbered(environment.pk, version_number)
        if version is None:
            raise NotFound("no policy is loaded")
        self.stdout.write(version.source, ending="")
