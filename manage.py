#!/usr/bin/env python
"""The command line: `manage.py serve` runs the service, `manage.py help` lists the rest."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import OperationalError, ProgrammingError

UNDEFINED_TABLE = "42P01"  # PostgreSQL's code
PREPARING = "`manage.py serve` does so as it starts, or `manage.py migrate`"


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "authz_project.settings")
    os.umask(0o077)  # databases hold password hashes, dumps who may do what: files are their owner's
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as reason:
        sys.exit(f"error: {reason}")
    except (OperationalError, ProgrammingError) as reason:
        if lacks_tables(reason):
            sys.exit(f"error: the database is not prepared: {PREPARING}")
        if isinstance(reason, ProgrammingError):
            raise
        sys.exit(f"error: the database cannot be used: {' '.join(str(reason).split())}")


def lacks_tables(error: Exception) -> bool:
    return str(error).startswith("no such table") or getattr(error.__cause__, "sqlstate", "") == UNDEFINED_TABLE


if __name__ == "__main__":
    main()
