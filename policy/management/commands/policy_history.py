"""Which policies there were."""

from typing import Any

from policy.management.command import PolicyCommand
from policy.models import Environment, PolicyVersion
from policy.publishing import active_version


class Command(PolicyCommand):
    help = "List the versions of the policy, the newest first; * is the active one."

    def act(self, environment: Environment, **options: Any) -> None:
        active = active_version(environment.pk)
        for version in PolicyVersion.objects.filter(environment=environment).defer("source").order_by("-number"):
            mark = "*" if version == active else " "
            line = f"{mark} {version.number:>5}  {version.created_at:%Y-%m-%d %H:%M} UTC  {version.digest[:12]}"
            self.stdout.write(f"{line}  {version.filename or ''}".rstrip())
