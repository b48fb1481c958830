"""Make policy files the active policy."""

import sys
from typing import Any

from policy.errors import PolicyTestsFailed
from policy.files import bundle_of_files
from policy.ground.journal import by_command
from policy.language.source import PolicyRejected
from policy.management.command import FILES, PolicyCommand, failures, note, rejection, warnings
from policy.models import Environment
from policy.publishing import CheckedDraft, draft, ignored_facts, publish, remarks_on


class Command(PolicyCommand):
    help = "Compile policy files, run the tests in them, and make them the active policy; or change nothing."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("files", nargs="+", metavar="FILE", help=FILES)
        parser.add_argument("--force", action="store_true", help="load the policy even if its tests fail")
        parser.add_argument("--fail-fast", action="store_true", help="stop at the first test that fails")
        parser.add_argument("--note", type=note, default="", metavar="TEXT", help="what changes, and why: one line")
        parser.add_argument("--dry-run", action="store_true", help="do all but change the policy")

    def act(
        self, environment: Environment, *, files: list[str], force: bool, fail_fast: bool, dry_run: bool, note: str,
        **options: Any,
    ) -> None:  # fmt: skip
        bundle = bundle_of_files(files, sys.stdin)
        drafted: CheckedDraft | None
        try:
            with self.progress("compiling and testing the policy"):
                if dry_run:
                    drafted = draft(bundle.text, bundle.filename, force=force, fail_fast=fail_fast)
                    remarks = remarks_on(drafted, ignored_facts(environment.pk, drafted.program))
                    message = "; ".join(["nothing is changed, and the policy can be loaded", *remarks])
                else:
                    text, name, by = bundle.text, bundle.filename, by_command("load_policy")
                    published = publish(environment.pk, text, name, force=force, fail_fast=fail_fast, by=by, note=note)
                    drafted, message = published.draft, published.message
        except (PolicyRejected, PolicyTestsFailed) as reason:
            raise rejection(reason, bundle, self.stderr) from None
        if drafted is not None:
            for line in warnings(drafted.program, bundle) + failures(drafted.report, bundle):
                self.stderr.write(line)
        self.stdout.write(message)
