"""List the versions of the policy."""

from typing import Any

from policy.management.command import PolicyCommand
from policy.models import Environment, PolicyVersion
from policy.publishing import Figures, active_version


class Command(PolicyCommand):
    help = (
        "List the versions of the policy, the newest first, with who published them and what their tests came to then;"
        " * is the active one."
    )

    def act(self, environment: Environment, **options: Any) -> None:
        active = active_version(environment.pk)
        for version in PolicyVersion.objects.filter(environment=environment).defer("source").order_by("-number"):
            mark = "*" if version == active else " "
            line = f"{mark} {version.number:>5}  {version.created_at:%Y-%m-%d %H:%M} UTC  {version.digest[:12]}"
            self.stdout.write(f"{line}  {version.filename or ''}".rstrip())
            for told in (_figures(version), version.note):
                if told:
                    self.stdout.write(f"         {told}")


def _figures(version: PolicyVersion) -> str:
    """Return `admin ann; tests: 12 passed, 9 of 10 rules exercised`, without the parts that are not known."""
    figures = Figures.of_version(version)
    tests = f"tests: {figures.tests_text}" if figures.tests else ""
    if tests and figures.percent is not None:
        tests += f", {figures.coverage_text} exercised"
    return "; ".join(filter(None, (version.author, tests)))
