"""Write facts to a file that load_facts can read."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import connection

from facts.read import every
from facts.wire import FORMATS_HELP, WRITERS, format_of
from policy.files import shown_name, written_file
from policy.management.command import PolicyCommand, add_as_of, counted, moment_asked
from policy.models import Environment


class Command(PolicyCommand):
    help = "Write all facts of an environment, as of one moment. load_facts reads the file."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument(
            "file", metavar="FILE", nargs="?", default="-", help="File to write (default: standard output)."
        )
        add_as_of(parser)
        parser.add_argument("--format", choices=sorted(WRITERS), help=FORMATS_HELP)

    def act(
        self, environment: Environment, *, file: str, format: str | None, as_of: str | None, **options: Any
    ) -> None:
        write = WRITERS[format or format_of(file)]
        facts = every(environment.pk, moment_asked(environment, as_of, needs_policy=False))
        if file == "-":
            output: Any = self.stdout._out  # what the wrapper writes to
            if hasattr(output, "reconfigure"):
                output.reconfigure(encoding="utf-8")  # whatever the terminal's: load_facts reads UTF-8
            write(output, facts)
            return
        if is_database(Path(file)):
            raise CommandError(f"`{shown_name(file)}` is the database itself. Specify another file.")
        with written_file(file, mode=0o600) as target, self.progress("writing facts") as shown:
            number = write(target, shown.counted(facts))
        self.stdout.write(f"{counted(number, 'fact')} written")


def is_database(file: Path) -> bool:
    """Return whether the file, which would be replaced, is that of the database in use."""
    database = Path(connection.settings_dict["NAME"])
    return connection.vendor == "sqlite" and file.is_file() and database.is_file() and file.samefile(database)
