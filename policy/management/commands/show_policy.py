"""Print the policy, its history, the diff of two policies, or a diagram."""

from typing import Any

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from policy.active import program_of_version
from policy.errors import NotFound
from policy.management import command
from policy.models import Environment, PolicyVersion
from policy.pages.highlight import unified
from policy.publishing import RecordedResults, active_version, version_numbered
from policy.rules.program import Program


class Command(command.PolicyCommand):
    help = "Print the active policy, an earlier version, the history, a diff, or a diagram of what grants what."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        which = parser.add_mutually_exclusive_group()
        version = command.add_version(which, "Print this version (default: the active one).")
        as_of = command.add_as_of(which)
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
        diagram = parser.add_argument(
            "--diagram", choices=["svg", "mermaid"], help="Print a diagram in this format, not the text."
        )
        files = parser.add_argument("files", nargs="*", metavar="FILE", help=f"Draw these files. {command.FILES}")
        of_type = parser.add_argument(
            "--type", default="", metavar="TYPE", dest="type_name", help="Draw only this type, or `global` rules."
        )
        target = parser.add_argument(
            "--leads-to", default="", metavar="TYPE.NAME",
            help="Draw only what leads to this role or permission, e.g. Repo.read.",
        )  # fmt: skip
        self.never_with(about, history, diff)
        self.never_with(diagram, about, history, diff)
        for option in (files, of_type, target):
            self.only_with(option, diagram)
        for option in (version, as_of):
            self.never_with(option, files)

    def handle(self, *, diff: list[str] | None, files: list[str], **options: Any) -> None:  # type: ignore[override]
        if files:  # needs no database
            self._draw(command.program_of_files(files, self.stderr), **options)
        elif diff and len(diff) == 2 and all(map(command.is_file, diff)):  # needs no database
            self._diff(diff, [command.text_of_file(policy) for policy in diff])
        else:
            super().handle(diff=diff, **options)

    def act(
        self, environment: Environment, *, version_number: int | None, as_of: str | None, history: bool,
        diff: list[str] | None, about: bool, diagram: str | None, **options: Any,
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
        if diagram:
            self._draw(program_of_version(version.pk), diagram, **options)
        elif about:
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

    def _draw(self, program: Program, diagram: str, type_name: str, leads_to: str, **_: Any) -> None:
        exported = import_string("checks.picture.page.exported")
        self.stdout.write(exported(program, diagram, type_name, leads_to), ending="")

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
