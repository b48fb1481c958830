"""Print a policy diagram, as SVG or Mermaid text."""

from typing import Any

from checks.picture.page import KINDS, exported
from policy.active import active_program, program_of_version
from policy.errors import NotFound
from policy.management.command import FILES, PolicyCommand, add_version, program_of_files
from policy.models import Environment
from policy.publishing import version_numbered
from policy.rules.program import Program


class Command(PolicyCommand):
    help = "Print a diagram of what grants what, as SVG or Mermaid text."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        files = parser.add_argument(
            "files", nargs="*", metavar="FILE", help=f"{FILES[:-1]} (default: the active policy)."
        )
        self.never_with(add_version(parser, "Draw this version of the policy, instead of files."), files)
        parser.add_argument("--format", choices=list(KINDS), default="svg", help="Format (default: %(default)s).")
        parser.add_argument(
            "--type", default="", metavar="TYPE", dest="type_name", help="Draw only this type, or `global` rules."
        )
        parser.add_argument(
            "--leads-to", default="", metavar="TYPE.NAME",
            help="Draw only what leads to this role or permission, e.g. Repo.read.",
        )  # fmt: skip

    def handle(self, *, files: list[str], version_number: int | None, **options: Any) -> None:  # type: ignore[override]
        if not files:
            super().handle(version_number=version_number, **options)
            return
        self._show(program_of_files(files, self.stderr), **options)  # needs no database

    def act(self, environment: Environment, *, version_number: int | None, **options: Any) -> None:
        self._show(_of_version(environment, version_number), **options)

    def _show(self, program: Program, *, format: str, type_name: str, leads_to: str, **options: Any) -> None:
        self.stdout.write(exported(program, format, type_name, leads_to), ending="")


def _of_version(environment: Environment, version_number: int | None) -> Program:
    if version_number is not None:
        return program_of_version(version_numbered(environment.pk, version_number).pk)
    program = active_program(environment.pk)
    if program is None:
        raise NotFound("No policy is loaded. Publish one with `load_policy`.")
    return program
