"""What grants what, as an SVG picture or as Mermaid text."""

import sys
from typing import Any

from django.core.management.base import CommandError

from checks.picture.page import KINDS, exported
from policy import rules
from policy.active import program_of_version
from policy.errors import AuthzError, NotFound
from policy.files import bundle_of_files
from policy.language.source import PolicyRejected
from policy.management.command import FILES, PolicyCommand, number, rejection
from policy.models import Environment
from policy.publishing import active_version, version_numbered
from policy.rules.program import Program


class Command(PolicyCommand):
    help = "Print what grants what in policy files, or in the environment's policy, as SVG or as Mermaid text."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("files", nargs="*", metavar="FILE", help=f"{FILES} (default: the active policy)")
        parser.add_argument("--version-number", "-n", type=number, help="an earlier version of the policy, not files")
        parser.add_argument("--format", choices=list(KINDS), default="svg", help="default: %(default)s")
        parser.add_argument("--type", default="", metavar="TYPE", dest="type_name", help="only that one; or `global`")
        parser.add_argument(
            "--leads-to", default="", metavar="TYPE.NAME", help="only what leads to a role or permission: Repo.read"
        )

    def handle(self, *, files: list[str], version_number: int | None, **options: Any) -> None:  # type: ignore[override]
        if files and version_number is not None:
            raise CommandError("name files or --version-number, not both")
        if not files:
            super().handle(version_number=version_number, **options)
            return
        try:  # no database is needed
            self._show(self._of_files(files), **options)
        except AuthzError as reason:
            raise CommandError(reason.message) from None

    def act(self, environment: Environment, *, version_number: int | None, **options: Any) -> None:
        self._show(_of_version(environment, version_number), **options)

    def _show(self, program: Program, *, format: str, type_name: str, leads_to: str, **options: Any) -> None:
        self.stdout.write(exported(program, format, type_name, leads_to), ending="")

    def _of_files(self, files: list[str]) -> Program:
        bundle = bundle_of_files(files, sys.stdin)
        try:
            return rules.compile_text(bundle.text, bundle.filename)
        except PolicyRejected as reason:
            raise rejection(reason, bundle, self.stderr) from None


def _of_version(environment: Environment, version_number: int | None) -> Program:
    if version_number is not None:
        return program_of_version(version_numbered(environment.pk, version_number).pk)
    version = active_version(environment.pk)
    if version is None:
        raise NotFound("no policy is loaded")
    return program_of_version(version.pk)
