"""Print the problems of policy files without loading them; no database is needed, but for `--against`."""

from typing import Any

from django.core.management.base import CommandError

from policy import rules
from policy.errors import AuthzError, Unavailable
from policy.files import Bundle, Unreadable, bundle_of_files
from policy.language.source import PolicyRejected
from policy.management import command
from policy.models import DEFAULT_SLUG
from policy.publishing import deep_notices
from policy.rules.program import Program


class Command(command.ServiceCommand):
    help = "Compile policy files and print problems and warnings. Tests are not run."

    def add_arguments(self, parser):
        parser.add_argument("files", nargs="+", metavar="FILE", help=command.FILES)
        parser.add_argument("--strict", action="store_true", help="Fail on warnings too.")
        parser.add_argument(
            "--format",
            dest="written_as",
            choices=["text", "github"],
            default="text",
            help="Output format; github annotates pull requests (default: text).",
        )
        deep = parser.add_argument(
            "--deep", action="store_true",
            help="Also report what has no effect, whatever the facts: rules that change no decision, roles that grant"
            ' nothing, permissions that nobody can have. Needs `pip install "authz-project[analysis]"`.',
        )  # fmt: skip
        against = parser.add_argument(
            "--against", metavar="POLICY",
            help="Fail if the policy grants more than this one, with any facts: a version number, `active`, or a file.",
        )  # fmt: skip
        allow, seconds = command.add_allow(parser)
        environment = parser.add_argument(
            "--environment", default=DEFAULT_SLUG, help="Environment for --against (default: %(default)s)."
        )
        command.add_watch(parser)
        self.only_with(allow, against)
        self.only_with(seconds, deep, against)
        self.only_with(environment, against)

    def handle(self, *, files: list[str], watch: bool, **options: Any) -> None:
        if watch:
            command.until_interrupted(files, lambda: self._check(files, **options), self.stdout)
        else:
            self._check(files, **options)

    def _check(
        self, files: list[str], *, strict: bool, written_as: str, deep: bool, against: str | None, allow: list[str],
        seconds: float, environment: str, **_: Any,
    ) -> None:  # fmt: skip
        for_github = written_as == "github"
        try:
            bundle = bundle_of_files(files)
            program = rules.compile_text(bundle.text, bundle.filename)
        except PolicyRejected as reason:
            if for_github:
                self._annotate(command.problem_line(problem, bundle) for problem in reason.problems)
            raise command.rejection(reason, bundle, self.stderr) from None
        except Unreadable as reason:
            raise CommandError(reason.message) from None
        if for_github:
            self._annotate(command.problem_line(warning, bundle) for warning in program.warnings)
        found = command.warnings(program, bundle)
        for warning in found:
            self.stderr.write(warning)
        if found and strict:
            raise CommandError(command.counted(len(found), "warning"))
        numbers = {"type": len(program.types), "rule": len(program.written), "test": len(program.tests)}
        counts = ", ".join(command.counted(number, kind) for kind, number in numbers.items())
        self.stdout.write(f"no problems: {counts}")
        try:
            if deep:
                self._check_deep(program, bundle, seconds, for_github)
            if against is not None:
                command.refuse_more(against, environment, program, allow, seconds, self.stdout)
        except (AuthzError, Unavailable) as reason:
            raise CommandError(reason.message, returncode=2) from None

    def _check_deep(self, program: Program, bundle: Bundle, seconds: float, for_github: bool) -> None:
        notices, is_whole = deep_notices(program, seconds)
        for notice in notices:
            self.stdout.write(
                command.problem_line(notice, bundle) if for_github else f"notice: {bundle.describe(notice)}"
            )
        if not is_whole:
            self.stderr.write(f"warning: not everything was checked within {seconds:g} seconds; see --seconds")

    def _annotate(self, lines):
        for line in lines:
            self.stdout.write(line)
