"""The text of a policy, as it was sent."""

from typing import Any

from policy.errors import NotFound
from policy.management.command import PolicyCommand, add_as_of, moment_asked, number
from policy.models import Environment, PolicyVersion
from policy.publishing import active_version, version_numbered


class Command(PolicyCommand):
    help = "Print the active policy, or another version of it."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--version-number", "-n", type=number, help="default: the active one")
        add_as_of(parser)

    def act(
        self, environment: Environment, *, version_number: int | None, as_of: str | None, **options: Any
    ) -> None:
        moment = moment_asked(environment, as_of)
        if version_number is not None:
            version: PolicyVersion | None = version_numbered(environment.pk, version_number)
        elif moment is not None and moment.version is not None:
            version = PolicyVersion.objects.filter(pk=moment.version).first()
        else:
            version = active_version(environment.pk)
        if version is None:
            raise NotFound("no policy is loaded")
        self.stdout.write(version.source, ending="")
