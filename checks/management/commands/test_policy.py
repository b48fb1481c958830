"""Run the tests in policy files without publishing them."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError

from checks.asking.run import in_memory
from checks.testing import FORMATS, ran
from policy.errors import AuthzError
from policy.files import bundle_of_files
from policy.management.command import FILES, ServiceCommand, add_watch, rejection, until_interrupted

FORMAT = "Output format; junit for continuous integration, github annotates pull requests (default: text)."


class Command(ServiceCommand):
    help = "Run the tests in policy files and report each assertion. Stored policies and facts are not used."

    def add_arguments(self, parser):
        parser.add_argument("files", nargs="+", metavar="FILE", help=FILES)
        parser.add_argument("--fail-fast", action="store_true", help="Stop at the first failing assertion.")
        parser.add_argument(
            "--coverage", dest="covering", action="store_true", help="List the rules that no test exercises."
        )
        parser.add_argument(
            "--coverage-minimum",
            dest="minimum",
            metavar="PERCENT",
            type=percent,
            help="Fail if tests exercise less than this share of the rules, e.g. 90. Implies --coverage.",
        )
        parser.add_argument("--format", dest="written_as", choices=[*FORMATS], default="text", help=FORMAT)
        add_watch(parser)

    def handle(self, *, files: list[str], watch: bool, **options: Any) -> None:
        with in_memory():
            if watch:
                until_interrupted(files, lambda: self._test(files, **options), self.stdout)
            else:
                self._test(files, **options)

    def _test(
        self, files: list[str], *, fail_fast: bool, covering: bool, minimum: float | None, written_as: str, **_: Any
    ) -> None:
        try:
            bundle = bundle_of_files(files)
            with self.progress("testing the policy"):
                run = ran(bundle, fail_fast, covering, minimum)
        except AuthzError as reason:
            raise CommandError(reason.message) from None
        if not (run.refused and written_as == "text"):
            self.stdout.write("\n".join(FORMATS[written_as](run)))
        if run.refused:
            raise rejection(run.refused, bundle, self.stderr)
        if run.failures:
            raise CommandError("; ".join(run.failures))


def percent(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found <= 100:
        raise ArgumentTypeError(f"`{text}` is not a number from 0 to 100")
    return found
