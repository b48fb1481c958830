#!/usr/bin/env python
"""The command line: `manage.py serve` runs the service, `manage.py help` lists the rest."""

import os
import signal
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DatabaseError, InterfaceError, OperationalError

UNDEFINED_TABLE = "42P01"  # PostgreSQL's code
PREPARING = "`manage.py serve` does so as it starts, or `manage.py migrate`"


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "authz_project.settings")
    os.umask(0o077)  # databases hold password hashes, dumps who may do what: files are their owner's
    try:
        execute_from_command_line(sys.argv)
        sys.stdout.flush()  # here, where it can still be said that it fails
    except ImproperlyConfigured as reason:
        sys.exit(f"error: {reason}")
    except (DatabaseError, InterfaceError) as reason:
        sys.exit(f"error: {matter_with(reason)}")
    except UnicodeEncodeError as reason:
        sys.exit(f"error: {unwritable(reason)}")
    except BrokenPipeError:
        forget_output()  # who reads has had enough, as `head` does
        sys.exit(128 + signal.SIGPIPE)
    except OSError as reason:
        forget_output()
        sys.exit(f"error: {(reason.strerror or str(reason)).lower()}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def forget_output() -> None:
    """What is left to write is not tried again at the end, where it would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def matter_with(error: DatabaseError | InterfaceError) -> str:
    """What is the matter with the database; raises again what is a mistake of ours."""
    if lacks_tables(error):
        return f"the database is not prepared: {PREPARING}"
    if not isinstance(error, InterfaceError | OperationalError) and type(error) is not DatabaseError:
        raise error
    first = next(iter(str(error).splitlines()), type(error).__name__)
    return f"the database cannot be used: {first.strip()}; DATABASE_URL says which one it is"


def unwritable(error: UnicodeEncodeError) -> str:
    char = ascii(error.object[error.start])
    if any("\ud800" <= each <= "\udfff" for each in error.object):
        return "a word of the command line is not UTF-8 text: write names and ids in UTF-8"
    return f"the output's encoding, {error.encoding}, has no {char}: set PYTHONIOENCODING=utf-8"


def lacks_tables(error: Exception) -> bool:
    return str(error).startswith("no such table") or getattr(error.__cause__, "sqlstate", "") == UNDEFINED_TABLE


if __name__ == "__main__":
    main()
