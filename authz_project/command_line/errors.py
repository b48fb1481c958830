"""Convert the exception that ended a command to an error message or exit status."""

import os
import signal
import sys

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, OperationalError

from authz_project.command_line.overview import program_name
from authz_project.database import lacks_tables, missing_database


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
        case OSError():
            _forget_output()
            return f"error: {(reason.strerror or str(reason)).lower()}"
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
        return f"The database has no tables. Run `{program} serve` or `{program} migrate`."
    if not isinstance(error, InterfaceError | OperationalError) and type(error) is not DatabaseError:
        raise error
    first = next(iter(str(error).splitlines()), type(error).__name__)
    return f"Cannot use the database: {first.strip()}. Check DATABASE_URL."


def _unwritable(error: UnicodeEncodeError) -> str:
    char = ascii(error.object[error.start])
    if any("\ud800" <= each <= "\udfff" for each in error.object):
        return "An argument is not UTF-8 text. Encode names and ids in UTF-8."
    return f"The output encoding {error.encoding} cannot represent {char}. Set PYTHONIOENCODING=utf-8."
