"""What is wrong with policy files, without loading them; no database is needed."""

import sys
from typing import Any

from django.core.management.base import CommandError

from policy import rules
from policy.files import Unreadable, bundle_of_files
from policy.language.rejection import PolicyRejected
from policy.management.command import FILES, ServiceCommand, rejection, warnings


class Command(ServiceCommand):
    help = "Compile policy files and print their problems and warnings. The tests in them are not run."

    def add_arguments(self, parser):
        parser.add_argument("files", nargs="+", metavar="FILE", help=FILES)
        parser.add_argument("--strict", action="store_true", help="fail on warnings too")

    def handle(self, *, files: list[str], strict: bool, **options: Any) -> None:
        try:
            bundle = bundle_of_files(files, sys.stdin)
            program = rules.compile_text(bundle.text, bundle.filename)
        except PolicyRejected as reason:
            raise rejection(reason, bundle, self.stderr) from None
        except Unreadable as reason:
            raise CommandError(reason.message) from None
        found = warnings(program, bundle)
        for warning in found:
            self.stderr.write(warning)
        if found and strict:
            raise CommandError(f"{len(found)} warning{'' if len(found) == 1 else 's'}")
        counts = f"{len(program.types)} types, {len(program.written)} rules, {len(program.tests)} tests"
        self.stdout.write(f"no problems: {counts}")
