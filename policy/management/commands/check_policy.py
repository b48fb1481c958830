"""Print the problems of policy files without loading them; no database is needed."""

import sys
from typing import Any

from django.core.management.base import CommandError

from policy import rules
from policy.files import Unreadable, bundle_of_files
from policy.language.source import PolicyRejected
from policy.management.command import (
    FILES,
    ServiceCommand,
    add_watch,
    counted,
    problem_line,
    rejection,
    until_interrupted,
    warnings,
)


class Command(ServiceCommand):
    help = "Compile policy files and print problems and warnings. Tests are not run."

    def add_arguments(self, parser):
        parser.add_argument("files", nargs="+", metavar="FILE", help=FILES)
        parser.add_argument("--strict", action="store_true", help="Fail on warnings too.")
        parser.add_argument(
            "--format",
            dest="written_as",
            choices=["text", "github"],
            default="text",
            help="Output format; github annotates pull requests (default: text).",
        )
        add_watch(parser)

    def handle(self, *, files: list[str], strict: bool, written_as: str, watch: bool, **options: Any) -> None:
        if watch:
            until_interrupted(files, lambda: self._check(files, strict, written_as), self.stdout)
        else:
            self._check(files, strict, written_as)

    def _check(self, files: list[str], strict: bool, written_as: str) -> None:
        for_github = written_as == "github"
        try:
            bundle = bundle_of_files(files, sys.stdin)
            program = rules.compile_text(bundle.text, bundle.filename)
        except PolicyRejected as reason:
            if for_github:
                self._annotate(problem_line(problem, bundle) for problem in reason.problems)
            raise rejection(reason, bundle, self.stderr) from None
        except Unreadable as reason:
            raise CommandError(reason.message) from None
        if for_github:
            self._annotate(problem_line(warning, bundle) for warning in program.warnings)
        found = warnings(program, bundle)
        for warning in found:
            self.stderr.write(warning)
        if found and strict:
            raise CommandError(counted(len(found), "warning"))
        numbers = {"type": len(program.types), "rule": len(program.written), "test": len(program.tests)}
        counts = ", ".join(counted(number, kind) for kind, number in numbers.items())
        self.stdout.write(f"no problems: {counts}")

    def _annotate(self, lines):
        for line in lines:
            self.stdout.write(line)
