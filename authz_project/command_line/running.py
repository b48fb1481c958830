"""Find and run a command, or suggest a similar one."""

import gc
import sys
from argparse import SUPPRESS
from difflib import get_close_matches
from textwrap import fill
from typing import Any

import django
from django.conf import settings
from django.core.management import ManagementUtility, get_commands
from django.core.management.base import BaseCommand, CommandParser

from authz_project.command_line.overview import GROUPS, overview, program_name, version_line

# Django's options, which every command accepts and no help text repeats.
OF_EVERY_COMMAND = {
    "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color", "--force-color",
    "--skip-checks",
}  # fmt: skip
WIDTH = 100


def run(argv: list[str]) -> None:
    CommandLine(argv).execute()


def with_own_help(command: BaseCommand) -> None:
    """Hide the options common to all commands from the help, and make `--version` print the service's version."""
    create_parser = command.create_parser

    def create_own_parser(*names: str, **options: Any) -> CommandParser:
        parser = create_parser(*names, **options)
        for action in parser._actions:
            if not OF_EVERY_COMMAND.isdisjoint(action.option_strings) and action.dest != "version_number":
                action.help = SUPPRESS
        return parser

    command.create_parser = create_own_parser  # type: ignore[method-assign]
    command.get_version = version_line  # type: ignore[method-assign]


class CommandLine(ManagementUtility):
    """Django's command line with this service's version, list of commands and error messages."""

    def execute(self) -> None:
        words = self.argv[1:]
        if words[:1] == ["version"]:  # Django would print its own version
            self.set_up()
            self.fetch_command("version").run_from_argv(self.argv)
        elif words == ["help", "--all"]:
            self.set_up()
            sys.stdout.write(f"{self.everything()}\n")
        else:
            super().execute()

    def set_up(self) -> None:
        settings.INSTALLED_APPS  # noqa: B018  raises what is wrong with the settings
        django.setup()

    def fetch_command(self, subcommand: str) -> BaseCommand:
        if subcommand not in get_commands():
            settings.INSTALLED_APPS  # noqa: B018  without good settings there are no commands but Django's
            sys.exit(f"error: {self.unknown(subcommand)}")
        command: BaseCommand = super().fetch_command(subcommand)
        with_own_help(command)
        gc.enable()
        gc.freeze()  # imported objects are permanent: exclude them from garbage collection
        return command

    def unknown(self, name: str) -> str:
        program = program_name(self.argv[0])
        if meant := get_close_matches(name.replace("-", "_").lower(), get_commands(), 1):
            return f"Command `{name}` does not exist. Did you mean `{program} {meant[0]}`?"
        return f"Command `{name}` does not exist. `{program} help` lists all commands."

    def everything(self) -> str:
        """Return a list of all commands, with Django's grouped by app."""
        named = {name for group in GROUPS.values() for name in group}
        others: dict[str, list[str]] = {}
        for name, app in sorted(get_commands().items()):
            if name not in named:
                others.setdefault(str(app).rpartition(".")[2], []).append(name)
        width = max(map(len, others))
        rows = [
            fill(", ".join(names), WIDTH, initial_indent=f"  {app:<{width}}  ", subsequent_indent=" " * (width + 4))
            for app, names in sorted(others.items())
        ]
        return "\n".join([overview(program_name(self.argv[0])), "", "Commands of Django", *rows])
