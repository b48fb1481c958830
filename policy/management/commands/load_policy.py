"""Publish policy files, or an earlier version of the policy."""

from typing import Any

from django.core.management.base import CommandError

from policy import publishing
from policy.core.journal import by_command
from policy.files import bundle_of_files
from policy.language.source import PolicyRejected
from policy.management import command
from policy.models import Environment
from policy.rules import compile_text

BY = by_command("load_policy")


class Command(command.PolicyCommand):
    help = "Compile policy files, run their tests, and publish them. If anything fails, nothing changes."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("files", nargs="*", metavar="FILE", help=command.FILES)
        version = command.add_version(parser, "Publish this earlier version again, instead of files.")
        parser.add_argument("--force", action="store_true", help="Publish even if tests fail.")
        fail_fast = parser.add_argument("--fail-fast", action="store_true", help="Stop at the first failing test.")
        note = parser.add_argument(
            "--note",
            type=command.note,
            default="",
            metavar="TEXT",
            help="One line for the history: what changed and why.",
        )
        dry_run = parser.add_argument(
            "--dry-run", action="store_true", help="Validate and run tests, but do not publish."
        )
        never_more = parser.add_argument(
            "--never-more", action="store_true",
            help="Publish only if the policy grants no more than the active one, with any facts. "
            'Needs `pip install "authz-project[analysis]"`.',
        )  # fmt: skip
        for option in command.add_allow(parser):
            self.only_with(option, never_more)
        for option in (fail_fast, note, dry_run):
            self.never_with(option, version)

    def act(self, environment: Environment, *, files: list[str], version_number: int | None, **options: Any) -> None:
        if bool(files) == (version_number is not None):
            raise CommandError("Specify either policy files or --version.")
        if version_number is not None:
            self.load_version(environment, version_number, **options)
        else:
            self.load_files(environment, files, **options)

    def load_version(self, environment: Environment, number: int, *, force: bool, **options: Any) -> None:
        replaces = None
        if options["never_more"]:
            replaces = self._refuse_more(
                environment, publishing.version_numbered(environment.pk, number).source, **options
            )
        try:
            done = publishing.activate(environment.pk, number, force=force, by=BY, replaces=replaces)
        except publishing.PolicyTestsFailed as reason:
            for error in reason.report.errors:
                self.stderr.write(error)
            told = f"{publishing.results_of(reason.report)}. Nothing was published. Pass --force to publish anyway."
            raise CommandError(told) from None
        for error in done.draft.report.errors if done.draft else ():
            self.stderr.write(error)
        self.stdout.write(done.message)

    def load_files(
        self, environment: Environment, files: list[str], *, force: bool, fail_fast: bool, dry_run: bool, note: str,
        **options: Any,
    ) -> None:  # fmt: skip
        bundle = bundle_of_files(files)
        drafted: publishing.CheckedDraft | None
        try:
            replaces = self._refuse_more(environment, bundle.text, **options) if options["never_more"] else None
            with self.progress("compiling and testing the policy"):
                if dry_run:
                    drafted = publishing.draft(bundle.text, bundle.filename, force=force, fail_fast=fail_fast)
                    remarks = publishing.remarks_on(drafted, publishing.ignored_facts(environment.pk, drafted.program))
                    message = "; ".join(["dry run: the policy can be published; nothing was changed", *remarks])
                else:
                    text, name = bundle.text, bundle.filename
                    published = publishing.publish(
                        environment.pk, text, name,
                        force=force, fail_fast=fail_fast, by=BY, note=note, replaces=replaces,
                    )  # fmt: skip
                    drafted, message = published.draft, published.message
        except (PolicyRejected, publishing.PolicyTestsFailed) as reason:
            raise command.rejection(reason, bundle, self.stderr) from None
        if drafted is not None:
            for line in command.warnings(drafted.program, bundle) + command.failures(drafted.report, bundle):
                self.stderr.write(line)
        self.stdout.write(message)

    def _refuse_more(
        self, environment: Environment, text: str, *, allow: list[str], seconds: float, **options: Any
    ) -> int:
        """Refuse a policy that may grant more than the active one, and return the active one's number, 0 for none."""
        replaced = publishing.active_number(environment.pk) or 0
        with self.progress("comparing with the active policy"):
            command.refuse_more(command.ACTIVE, environment.slug, compile_text(text), allow, seconds, self.stdout)
        return replaced
