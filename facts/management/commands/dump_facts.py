"""Facts to a file, as load_facts reads them."""

from pathlib import Path

from django.core.management.base import BaseCommand

from facts.lines import WRITERS
from facts.management.commands.load_facts import environment_id_of
from facts.read import every
from policy.models import DEFAULT_SLUG


class Command(BaseCommand):
    help = "Write all facts of an environment, as of one moment."
    requires_system_checks = ()  # they are about the code, and take a quarter of a second

    def add_arguments(self, parser):
        parser.add_argument("file", nargs="?", default="-", help="default: the standard output")
        parser.add_argument("--environment", default=DEFAULT_SLUG)
        parser.add_argument("--format", choices=sorted(WRITERS), help="default: by the file's name, else json")

    def handle(self, *, file, environment, format, **options):
        write = WRITERS[format or ("csv" if file.endswith(".csv") else "json")]
        facts = every(environment_id_of(environment))
        if file == "-":
            write(self.stdout._out, facts)
            return
        with Path(file).open("w", encoding="utf-8", newline="") as target:
            number = write(target, facts)
        self.stdout.write(f"{number} facts written")
