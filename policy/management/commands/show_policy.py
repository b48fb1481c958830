"""The text of a policy, as it was sent."""

from typing import Any

from policy.errors import NotFound
from policy.management.command import PolicyCommand, add_as_of, moment_asked, number
from policy.models import Environment, PolicyVersion
from policy.publishing import Figures, active_version, version_numbered


class Command(PolicyCommand):
    help = "Print the active policy, or another version of it."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--version-number", "-n", type=number, help="default: the active one")
        add_as_of(which)
        parser.add_argument("--about", action="store_true", help="print who published it, when and why, not its text")

    def act(
        self, environment: Environment, *, version_number: int | None, as_of: str | None, about: bool, **options: Any
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
        if about:
            self.stdout.write("\n".join(f"{name + ':':<11}{told}" for name, told in _facts(version) if told))
        else:
            self.stdout.write(version.source, ending="")


def _facts(version: PolicyVersion) -> list[tuple[str, str]]:
    figures = Figures.of_version(version)
    return [
        ("version", str(version.number)),
        ("published", f"{version.created_at:%Y-%m-%d %H:%M} UTC"),
        ("by", version.author),
        ("note", version.note),
        ("file", version.filename or ""),
        ("tests", figures.tests_text),
        ("coverage", figures.coverage_text),
        ("digest", version.digest),
    ]
