"""Print the policy, its history, or the diff of two policies."""

from typing import Any

from django.core.management.base import CommandError

from policy.errors import NotFound
from policy.management import command
from policy.models import Environment, PolicyVersion
from policy.pages.highlight import unified
from policy.publishing import RecordedResults, active_version, version_numbered


class Command(command.PolicyCommand):
    help = "Print the active policy, an earlier version, the history of versions, or a diff."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        which = parser.add_mutually_exclusive_group()
        command.add_version(which, "Print this version (default: the active one).")
        command.add_as_of(which)
        history = which.add_argument(
            "--history", action="store_true",
            help="List all versions, newest first, with author, test results and note. * marks the active one.",
        )  # fmt: skip
        diff = which.add_argument(
            "--diff", nargs="+", metavar="POLICY",
            help="Print the changes from the first policy to the second, or from the active policy if one is given."
            " Each is a version number, `active`, or a file (- for standard input).",
        )  # fmt: skip
        about = parser.add_argument(
            "--about", action="store_true", help="Print author, date, note and tests, not the text."
        )
        self.never_with(about, history, diff)

    def handle(self, *, diff: list[str] | None, **options: Any) -> None:  # type: ignore[override]
        if diff and len(diff) == 2 and all(map(command.is_file, diff)):  # needs no database
            self._diff(diff, [command.text_of_file(policy) for policy in diff])
        else:
            super().handle(diff=diff, **options)

    def act(
        self, environment: Environment, *, version_number: int | None, as_of: str | None, history: bool,
        diff: list[str] | None, about: bool, **options: Any,
    ) -> None:  # fmt: skip
        if history:
            self._history(environment)
            return
        if diff:
            if len(diff) > 2:
                raise CommandError(f"--diff takes one or two policies, not {len(diff)}.")
            names = diff if len(diff) == 2 else [command.ACTIVE, *diff]
            self._diff(names, [command.text_of(environment, policy) for policy in names])
            return
        moment = command.moment_asked(environment, as_of, needs_policy=False)
        if version_number is not None:
            version: PolicyVersion | None = version_numbered(environment.pk, version_number)
        elif moment is not None:
            if moment.version is None:
                raise NotFound(f"no policy was active at revision {moment.revision}; choose a version with `--version`")
            version = PolicyVersion.objects.filter(pk=moment.version).first()
        else:
            version = active_version(environment.pk)
        if version is None:
            raise NotFound("No policy is loaded. Publish one with `load_policy`.")
        if about:
            self.stdout.write("\n".join(f"{name + ':':<11}{told}" for name, told in _facts(version) if told))
        else:
            self.stdout.write(version.source, ending="")

    def _history(self, environment: Environment) -> None:
        active = active_version(environment.pk)
        for version in PolicyVersion.objects.filter(environment=environment).defer("source").order_by("-number"):
            mark = "*" if version == active else " "
            line = f"{mark} {version.number:>5}  {version.created_at:%Y-%m-%dT%H:%MZ}  {version.digest[:12]}"
            self.stdout.write(f"{line}  {version.filename or ''}".rstrip())
            for told in (_figures(version), version.note):
                if told:
                    self.stdout.write(f"         {told}")

    def _diff(self, names: list[str], texts: list[str]) -> None:
        if lines := list(unified(*texts, *names)):
            self.stdout.write("\n".join(lines))


def _facts(version: PolicyVersion) -> list[tuple[str, str]]:
    figures = RecordedResults.of_version(version)
    return [
        ("version", str(version.number)),
        ("published", f"{version.created_at:%Y-%m-%dT%H:%MZ}"),
        ("by", version.author),
        ("note", version.note),
        ("file", version.filename or ""),
        ("tests", figures.tests_text),
        ("coverage", figures.coverage_text),
        ("digest", version.digest),
    ]


def _figures(version: PolicyVersion) -> str:
    """Return `admin ann; tests: 12 passed, 9 of 10 rules exercised`, without the parts that are unknown."""
    figures = RecordedResults.of_version(version)
    tests = f"tests: {figures.tests_text}" if figures.tests else ""
    if tests and figures.percent is not None:
        tests += f", {figures.coverage_text} exercised"
    return "; ".join(filter(None, (version.author, tests)))
