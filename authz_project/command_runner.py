"""Find and run a command, or suggest a similar one; report errors."""

import errno
import gc
import os
import signal
import sys
from argparse import SUPPRESS
from difflib import get_close_matches
from textwrap import fill
from typing import Any

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import ManagementUtility, get_commands
from django.core.management.base import BaseCommand, CommandError, CommandParser, SystemCheckError
from django.db import DatabaseError, InterfaceError, OperationalError

from authz_project.command_line import GROUPS, overview, program_name, version_line
from authz_project.database import database_place, lacks_tables, missing_database

# Django's options, which every command accepts and no help text repeats.
OF_EVERY_COMMAND = {
    "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color", "--force-color",
    "--skip-checks",
}  # fmt: skip
WIDTH = 100


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


def with_own_errors(command: BaseCommand) -> None:
    """Let errors of Django's commands begin as those of ours do, without the name of their class."""
    execute, status = command.execute, getattr(command, "failure_status", 1)

    def execute_and_report(*args: Any, **options: Any) -> str | None:
        try:
            output = execute(*args, **options)
            if status != 1:
                command.stdout.flush()
            return output
        except CommandError as reason:
            if options["traceback"] or isinstance(reason, SystemCheckError):
                raise
            command.stderr.write(f"error: {reason}")
            sys.exit(reason.returncode)
        except (DatabaseError, InterfaceError, OSError) as reason:
            if status == 1 or isinstance(reason, BrokenPipeError):
                raise  # which ends with 1, or as `head` ends others
            command.stderr.write(str(ending_of(reason)))
            sys.exit(status)

    command.execute = execute_and_report  # type: ignore[method-assign]


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
        with_own_errors(command)
        if subcommand == "createsuperuser":  # its checks import every page, and `serve` reports migrations
            command.requires_system_checks, command.requires_migrations_checks = (), False
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


# ---- errors -------------------------------------------------------------------------------------------------------


def ending_of(reason: BaseException) -> str | int:
    """Return the exit message or status of the process; reraise the exception if it is a bug."""
    match reason:
        case KeyboardInterrupt():
            return 128 + signal.SIGINT
        case BrokenPipeError():  # the reader closed the pipe, as `head` does
            _forget_output()
            return 128 + signal.SIGPIPE
        case ImproperlyConfigured():
            return f"error: {reason}"
        case DatabaseError() | InterfaceError():
            return f"error: {_matter_with(reason)}"
        case UnicodeEncodeError():
            return f"error: {_unwritable(reason)}"
        case OSError(errno=errno.EBADF):
            _forget_output()
            return "error: Standard input or output is closed."
        case OSError():
            _forget_output()
            path = f"{reason.filename}: " if reason.filename else ""
            return f"error: {path}{(reason.strerror or str(reason)).lower()}"
    raise reason


def _forget_output() -> None:
    """Redirect standard output to /dev/null, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _matter_with(error: DatabaseError | InterfaceError) -> str:
    program = program_name(sys.argv[0])
    if "unable to open" in str(error) and (missing := missing_database()):
        return (
            f"No database at {missing}. Run `{program} serve` or `{program} migrate`; DATABASE_URL sets its location."
        )
    if lacks_tables(error):
        return f"The database {database_place()} has no tables. Run `{program} serve` or `{program} migrate`."
    if not isinstance(error, InterfaceError | OperationalError) and type(error) is not DatabaseError:
        raise error
    first = next(iter(str(error).splitlines()), type(error).__name__)
    return f"Cannot use the database: {first.strip()}. Check DATABASE_URL."


def _unwritable(error: UnicodeEncodeError) -> str:
    char = ascii(error.object[error.start])
    if any("\ud800" <= each <= "\udfff" for each in error.object):
        return "An argument is not UTF-8 text. Encode names and ids in UTF-8."
    return f"The output encoding {error.encoding} cannot represent {char}. Set PYTHONIOENCODING=utf-8."
