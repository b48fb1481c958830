"""Format policy files, show what would change, or check whether they are formatted."""

from typing import Any

from django.core.management.base import CommandError

from policy.files import STANDARD_INPUT, Bundle, Unreadable, Unwritable, bundle_of_files, replace_text
from policy.language.format import formatted, says_the_same
from policy.language.source import PolicyRejected
from policy.management.command import ServiceCommand, counted
from policy.pages.highlight import unified

OTHERWISE, FAILED = 1, 2  # exit codes: with --check, a file would be reformatted; a file cannot be formatted


class Command(ServiceCommand):
    help = (
        "Format policy files in place. Exits with 1 if --check finds a file to format, with 2 if a file is not a valid "
        "policy or cannot be read or written."
    )

    def add_arguments(self, parser):
        parser.add_argument(
            "files",
            nargs="+",
            metavar="FILE",
            help="Policy files, each formatted separately; - formats standard input to standard output.",
        )
        parser.add_argument("--check", action="store_true", help="Write nothing; exit with 1 if a file would change.")
        parser.add_argument("--diff", action="store_true", help="Write nothing; print the changes.")

    def handle(self, *, files: list[str], check: bool, diff: bool, **options: Any) -> None:
        changed = failed = 0
        for name in files:
            try:
                changed += self._format(name, check, diff)
            except (Unreadable, Unwritable) as reason:
                failed += 1
                self.stderr.write(reason.message)
        told = f"{counted(changed, 'file')} {'would be ' if check or diff else ''}reformatted"
        self._say(f"{told}, {len(files) - changed - failed} unchanged")
        if failed:
            raise CommandError(f"{counted(failed, 'file')} could not be formatted.", returncode=FAILED)
        if changed and check:
            raise CommandError("Run format_policy without --check to reformat.", returncode=OTHERWISE)

    def _format(self, name: str, check: bool, diff: bool) -> bool:
        """Format, compare or check one file, and return whether formatting changes it."""
        bundle = bundle_of_files([name])
        before = bundle.text
        after = _laid_out(bundle)
        shown = bundle.parts[0].filename
        if diff:
            self._show(before, after, shown)
        elif check:
            if after != before:
                self._say(f"{shown}: would be reformatted")
        elif name == STANDARD_INPUT:
            self.stdout.write(after, ending="")
        elif after != before:
            replace_text(name, before, after)
            self._say(f"{shown}: reformatted")
        return after != before

    def _show(self, before: str, after: str, shown: str) -> None:
        lines = list(unified(before, after, shown, f"{shown}, reformatted"))
        if lines:
            self.stdout.write("\n".join(lines))

    def _say(self, text: str) -> None:
        """Write to standard error: standard output has only texts and diffs."""
        self.stderr.write(text, style_func=str)


def _laid_out(bundle: Bundle) -> str:
    try:
        after = formatted(bundle.text)
    except PolicyRejected as reason:
        raise Unreadable("\n".join(bundle.describe(problem) for problem in reason.problems)) from None
    if not says_the_same(bundle.text, after):
        shown = bundle.parts[0].filename
        raise Unwritable(
            f"{shown}: formatting would change the meaning, so the file was not changed. Please report this bug."
        )
    return after
