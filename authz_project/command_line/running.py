"""The command that is asked for: found among all that there are, or said to be none of them."""

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

# Django's options, which every command takes and no help repeats.
OF_EVERY_COMMAND = {
    "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color", "--force-color",
    "--skip-checks",
}  # fmt: skip
WIDTH = 100


def run(argv: list[str]) -> None:
    CommandLine(argv).execute()


def with_own_help(command: BaseCommand) -> None:
    """Let the command's help say what it takes itself, and its version be this service's; Django's commands, too."""
    create_parser = command.create_parser

    def create_own_parser(*names: str, **options: Any) -> CommandParser:
        parser = create_parser(*names, **options)
        for action in parser._actions:
            if not OF_EVERY_COMMAND.isdisjoint(action.option_strings):
                action.help = SUPPRESS
        return parser

    command.create_parser = create_own_parser  # type: ignore[method-assign]
    command.get_version = version_line  # type: ignore[method-assign]


class CommandLine(ManagementUtility):
    """Django's, with this service's version, its list of commands, and its words where there is no such command."""

    def execute(self) -> None:
        words = self.argv[1:]
        if words[:1] == ["version"]:  # which Django takes for its own
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
        gc.freeze()  # what is imported stays: no collection need look at it again
        return command

    def unknown(self, name: str) -> str:
        program = program_name(self.argv[0])
        if meant := get_close_matches(name.replace("-", "_").lower(), get_commands(), 1):
            return f"there is no command `{name}`; did you mean `{program} {meant[0]}`?"
        return f"there is no command `{name}`; `{program} help` lists those that there are"

    def everything(self) -> str:
        """Return all commands; those of the framework by the part of it that they come from."""
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
        return "\n".join([overview(program_name(self.argv[0])), "", "Of the framework that it is made with", *rows])
