"""Store the facts of a file."""

from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import CommandError

from facts.accept import sentences
from facts.loading import LinesRejected, load
from facts.wire import FORMATS_HELP, READERS, format_of
from policy.core.journal import by_command
from policy.files import STANDARD_INPUT, opened, shown_name
from policy.language.source import without_collections
from policy.management.command import PolicyCommand, counted
from policy.models import Environment


class Command(PolicyCommand):
    help = (
        "Store the facts of a file, all or none. A line is JSON, CSV (predicate,type,id,type,id…), or the notation"
        " described at --format."
    )

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("file", metavar="FILE", help="File to read; - for standard input.")
        parser.add_argument("--format", choices=sorted(READERS), help=FORMATS_HELP)
        parser.add_argument("--skip-bad", action="store_true", help="Skip invalid lines and report them.")
        parser.add_argument(
            "--strict", action="store_true", help="Treat lines with unknown roles or relations as invalid."
        )

    def act(
        self, environment: Environment, *, file: str, format: str | None, skip_bad: bool, strict: bool, **options: Any
    ) -> None:
        read_lines = READERS[format or format_of(file)]
        with opened(file) as source, without_collections(), self.progress("storing facts") as shown:
            size = 0 if file == STANDARD_INPUT else Path(file).stat().st_size
            named = "standard input" if file == STANDARD_INPUT else f"`{shown_name(file)}`"

            def report(read: int) -> None:
                shown.tell(read, share_of(source, size))

            try:
                by = by_command("load_facts")
                loaded = load(environment.pk, read_lines(source), skip_bad, report, by, is_strict=strict)
            except LinesRejected as reason:
                advice = f"Correct these lines of {named}, set --format, or pass --skip-bad"
                raise CommandError(f"Nothing was stored. {advice}:\n{reason.message}") from None
        for line in loaded.bad:
            self.stderr.write(str(line))
        for sentence in sentences(loaded.unknown):
            self.stderr.write(f"warning: {sentence}")
        right = loaded.read - len(loaded.bad)
        skipped = counted(len(loaded.bad), "line")
        self.stdout.write(f"{counted(right, 'fact')} read, {loaded.inserted:,} of them new, {skipped} skipped")


def share_of(source: BinaryIO, size: int) -> float | None:
    """Return the share of the file that has been read; None if its size is 0. The CSV reader closes it when done."""
    if not size:
        return None
    return 1.0 if source.closed else source.tell() / size
