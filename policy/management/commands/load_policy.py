"""Publish policy files, or an earlier version of the policy."""

import sys
from typing import Any

from django.core.management.base import CommandError

from policy.core.journal import by_command
from policy.errors import PolicyTestsFailed
from policy.files import bundle_of_files
from policy.language.source import PolicyRejected
from policy.management.command import FILES, PolicyCommand, add_version, failures, note, rejection, warnings
from policy.models import Environment
from policy.publishing import CheckedDraft, activate, draft, ignored_facts, publish, remarks_on, results_of

BY = by_command("load_policy")


class Command(PolicyCommand):
    help = "Compile policy files, run their tests, and publish them. If anything fails, nothing changes."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("files", nargs="*", metavar="FILE", help=FILES)
        add_version(parser, "Publish this earlier version again, instead of files.")
        parser.add_argument("--force", action="store_true", help="Publish even if tests fail.")
        parser.add_argument("--fail-fast", action="store_true", help="Stop at the first failing test.")
        parser.add_argument(
            "--note", type=note, default="", metavar="TEXT", help="One line for the history: what changed and why."
        )
        parser.add_argument("--dry-run", action="store_true", help="Validate and run tests, but do not publish.")

    def act(self, environment: Environment, *, files: list[str], version_number: int | None, **options: Any) -> None:
        if bool(files) == (version_number is not None):
            raise CommandError("Specify either policy files or --version.")
        if version_number is not None:
            self.load_version(environment, version_number, **options)
        else:
            self.load_files(environment, files, **options)

    def load_version(
        self, environment: Environment, number: int, *, force: bool, fail_fast: bool, note: str, dry_run: bool,
        **options: Any,
    ) -> None:  # fmt: skip
        if fail_fast or note or dry_run:
            raise CommandError("--fail-fast, --note and --dry-run are for policy files, not for --version.")
        try:
            done = activate(environment.pk, number, force=force, by=BY)
        except PolicyTestsFailed as reason:
            for error in reason.report.errors:
                self.stderr.write(error)
            told = f"{results_of(reason.report)}. Nothing was published. Pass --force to publish anyway."
            raise CommandError(told) from None
        for error in done.draft.report.errors if done.draft else ():
            self.stderr.write(error)
        self.stdout.write(done.message)

    def load_files(
        self, environment: Environment, files: list[str], *, force: bool, fail_fast: bool, dry_run: bool, note: str,
        **options: Any,
    ) -> None:  # fmt: skip
        bundle = bundle_of_files(files, sys.stdin)
        drafted: CheckedDraft | None
        try:
            with self.progress("compiling and testing the policy"):
                if dry_run:
                    drafted = draft(bundle.text, bundle.filename, force=force, fail_fast=fail_fast)
                    remarks = remarks_on(drafted, ignored_facts(environment.pk, drafted.program))
                    message = "; ".join(["dry run: the policy can be published; nothing was changed", *remarks])
                else:
                    text, name = bundle.text, bundle.filename
                    published = publish(environment.pk, text, name, force=force, fail_fast=fail_fast, by=BY, note=note)
                    drafted, message = published.draft, published.message
        except (PolicyRejected, PolicyTestsFailed) as reason:
            raise rejection(reason, bundle, self.stderr) from None
        if drafted is not None:
            for line in warnings(drafted.program, bundle) + failures(drafted.report, bundle):
                self.stderr.write(line)
        self.stdout.write(message)
